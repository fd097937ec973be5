// SPDX-License-Identifier: Apache-2.0
#include "capi/boundary.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "simd/kernels.hpp"

#include <oneapi/dnnl/dnnl_version.h>
#include <sstream>
#include <tbb/version.h>

namespace dslide::capi {
namespace {
thread_local char last_error[1024] = "";
}

dslide_status record(dslide_status status, const char *text) noexcept {
    one_line(text, last_error, sizeof last_error);
    return status;
}

void write_text(std::string_view text, char *buf, std::size_t cap, std::size_t *out_len) {
    if (out_len) *out_len = text.size();
    if (cap == 0) return;
    need(buf, "buf");
    if (text.size() + 1 > cap)
        fail(DSLIDE_E_ARGUMENT, "text of ", text.size() + 1, " bytes does not fit into cap ", cap);
    std::memcpy(buf, text.data(), text.size());
    buf[text.size()] = '\0';
}

} // namespace dslide::capi

using namespace dslide;

const char *dslide_last_error(void) noexcept { return capi::last_error; }

const char *dslide_status_name(dslide_status status) noexcept {
    switch (status) {
    case DSLIDE_OK:
        return "ok";
    case DSLIDE_E_ARGUMENT:
        return "argument";
    case DSLIDE_E_MEMORY:
        return "memory";
    case DSLIDE_E_IO:
        return "io";
    case DSLIDE_E_FORMAT:
        return "format";
    case DSLIDE_E_STATE:
        return "state";
    case DSLIDE_E_MPI:
        return "mpi";
    case DSLIDE_E_PEER:
        return "peer";
    case DSLIDE_E_STOPPED:
        return "stopped";
    case DSLIDE_E_UNSUPPORTED:
        return "unsupported";
    case DSLIDE_E_DIVERGED:
        return "diverged";
    case DSLIDE_E_INTERNAL:
        return "internal";
    default:
        return "unknown";
    }
}

#define DSLIDE_TEXT_OF(x) #x
#define DSLIDE_TEXT(x) DSLIDE_TEXT_OF(x)

const char *dslide_version(void) noexcept {
    return DSLIDE_TEXT(DSLIDE_VERSION_MAJOR) "." DSLIDE_TEXT(DSLIDE_VERSION_MINOR) "." DSLIDE_TEXT(
        DSLIDE_VERSION_PATCH);
}

int32_t dslide_abi_version(void) noexcept { return DSLIDE_ABI_VERSION; }

dslide_status dslide_build_info(char *buf, size_t cap, size_t *out_len) noexcept {
    return DSLIDE_BOUNDARY {
        std::ostringstream text;
        text << "version: " << dslide_version() << "\ncompiler: " DSLIDE_COMPILER "\nonetbb: " << TBB_VERSION_MAJOR
             << '.' << TBB_VERSION_MINOR << "\nonednn: " << DNNL_VERSION_MAJOR << '.' << DNNL_VERSION_MINOR
             << "\ncompression: gzip xz zstd\n";
        capi::write_text(text.str(), buf, cap, out_len);
    };
}

dslide_status dslide_cpu_info(char *buf, size_t cap, size_t *out_len) noexcept {
    return DSLIDE_BOUNDARY {
        std::ostringstream text;
        text << "kernels: " << simd::kernels().name << "\nchosen: " << simd::kernel_choice() << "\navailable:";
        for (const char *const *name = simd::kernel_names(); *name; ++name) text << ' ' << *name;
        text << '\n';
        capi::write_text(text.str(), buf, cap, out_len);
    };
}

dslide_status dslide_set_log(dslide_log_fn sink, void *user_data, int32_t level) noexcept {
    return DSLIDE_BOUNDARY {
        if (level != DSLIDE_LOG_WARNING && level != DSLIDE_LOG_INFO)
            fail(DSLIDE_E_ARGUMENT, "level ", level, " is not a log level");
        log_sink() = {sink, user_data, level};
    };
}
