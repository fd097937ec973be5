# SPDX-License-Identifier: Apache-2.0
# bash completion for dslide. Flags and their values are read from `dslide COMMAND --help`, so they are never out of date.

_dslide() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} help kind
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W 'train eval predict info verify export bench --help --version' -- "$word")
        return
    fi
    help=$("$1" "${COMP_WORDS[1]}" --help 2>/dev/null) || return
    # What stands after the flag in its help line: a kind of value, or choices with bars between them.
    kind=$(sed -n "s/^  $previous \([^ ]*\).*/\1/p" <<<"$help")
    case $previous:$kind in
        --*:*'|'*) mapfile -t COMPREPLY < <(compgen -W "${kind//|/ }" -- "$word") ;;
        --*:DIR | --*:OUTDIR) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
        --*:FILE) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
        --*:N* | --*:X | --*:NAME) ;;
        *)
            if [[ $word == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "$(sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' <<<"$help")" -- "$word")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$word")
            fi
            ;;
    esac
}
complete -o filenames -F _dslide dslide
