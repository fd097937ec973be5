/* SPDX-License-Identifier: Apache-2.0 */
/* A program outside the project's tree: is the library found, and is it the one of these headers? */
#include <dslide/dslide.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    char text[512];
    size_t length = 0;
    char release[32];
    if (dslide_abi_version() != DSLIDE_ABI_VERSION) {
        fprintf(stderr, "ABI %d, headers %d\n", (int)dslide_abi_version(), DSLIDE_ABI_VERSION);
        return 1;
    }
    sprintf(release, "%d.%d.%d", DSLIDE_VERSION_MAJOR, DSLIDE_VERSION_MINOR, DSLIDE_VERSION_PATCH);
    if (strcmp(release, dslide_version()) != 0) {
        fprintf(stderr, "library %s, headers %s\n", dslide_version(), release);
        return 1;
    }
    if (dslide_build_info(text, sizeof text, &length) != DSLIDE_OK || length != strlen(text)) {
        fprintf(stderr, "build info: %s\n", dslide_last_error());
        return 1;
    }
    if (dslide_set_log(NULL, NULL, 77) != DSLIDE_E_ARGUMENT || strchr(dslide_last_error(), '7') == NULL) {
        fprintf(stderr, "a bad log level was not refused\n");
        return 1;
    }
    return 0;
}
