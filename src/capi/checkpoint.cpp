// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint.hpp"
#include "capi/boundary.hpp"
#include "model/meta.hpp"

#include <dslide/model.h>

using namespace dslide;

dslide_status dslide_checkpoint_verify(const char *dir, dslide_checkpoint_info *out) noexcept {
    return DSLIDE_BOUNDARY {
        if (out) capi::check_result(out, "out");
        const CheckpointReader reader(capi::need(dir, "dir"));
        reader.verify();
        const Meta meta(reader.meta());
        dslide_checkpoint_info info{};
        info.format_version = reader.format_version();
        info.is_full = meta.has("full") && meta.get_bool("full");
        info.n_shards = reader.shard_count();
        info.bytes = reader.total_bytes();
        info.n_tensors = static_cast<std::int64_t>(reader.tensor_names().size());
        info.samples_seen = meta.has("samples_seen") ? meta.get_int("samples_seen") : 0;
        info.steps = meta.has("steps") ? meta.get_int("steps") : 0;
        if (out) capi::write_result(info, out, "out");
    };
}
