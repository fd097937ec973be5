# SPDX-License-Identifier: Apache-2.0
# fish completion for dslide. Flags are read from `dslide COMMAND --help`.

set -l commands train eval predict info verify export bench
complete -c dslide -n "not __fish_seen_subcommand_from $commands" -f -a "$commands --help --version"
for command in $commands
    complete -c dslide -n "__fish_seen_subcommand_from $command" \
        -a "(dslide $command --help 2>/dev/null | string match -r -- '^  --[a-z0-9-]+' | string trim)"
end
