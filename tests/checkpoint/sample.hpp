// SPDX-License-Identifier: Apache-2.0
// Checkpoints whose every value follows from a generation; sample.py says the same in Python.
#pragma once

#include "model/checkpoint.hpp"

#include <string>
#include <vector>

struct Sample {
    static constexpr std::int64_t rows = 40, cols = 3;
    std::vector<float> weight;
    std::vector<std::int64_t> counts;
    std::vector<std::int32_t> tables;
    std::vector<unsigned char> flags;
    dslide::CheckpointContent content;

    explicit Sample(std::int64_t generation) {
        for (std::int64_t i = 0; i < rows * cols; ++i)
            weight.push_back(static_cast<float>(generation) + 0.25f * static_cast<float>(i));
        counts = {generation, -1, std::int64_t{1} << 40};
        tables = {static_cast<std::int32_t>(generation), -2};
        flags = {static_cast<unsigned char>(generation % 256), 255, 7};
        content.meta = "{\"full\":true,\"samples_seen\":" + std::to_string(10 * generation) +
                       ",\"steps\":" + std::to_string(generation) + "}";
        using dslide::DType;
        content.tensors = {{"output.weight", DType::f32, rows, cols, 0, rows, weight.data(), cols},
                           {"counts", DType::i64, 3, 1, 0, 3, counts.data(), 1},
                           {"tables", DType::i32, 1, 2, 0, 1, tables.data(), 2},
                           {"flags", DType::u8, 1, 3, 0, 1, flags.data(), 3}};
        content.files = {{"labels.txt", "cat\nd\xc3\xb6g\n"}, {"note.txt", ""}};
    }
    /// Small enough that the weights take several shards and the shards several blocks.
    static dslide::SaveOptions options() {
        dslide::SaveOptions options;
        options.shard_bytes = 200;
        options.block_bytes = 512;
        return options;
    }
};
