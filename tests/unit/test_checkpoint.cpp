// SPDX-License-Identifier: Apache-2.0
#include "cmocka.hpp"
#include "core/error.hpp"
#include "model/checkpoint.hpp"
#include "model/checkpoint_format.hpp"
#include "model/meta.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

using namespace dslide;
namespace fs = std::filesystem;

namespace {

/// A directory of its own for each test, removed at its end.
class Scratch {
public:
    Scratch() {
        std::string pattern = (fs::temp_directory_path() / "dslide-test-XXXXXX").string();
        path_ = mkdtemp(pattern.data());
    }
    ~Scratch() { fs::remove_all(path_); }
    std::string operator/(const std::string &name) const { return path_ + "/" + name; }
    const std::string &path() const { return path_; }

private:
    std::string path_;
};

struct Failure {
    dslide_status status = DSLIDE_OK;
    std::string text;
    bool says(const std::string &part) const { return text.find(part) != std::string::npos; }
};

[[maybe_unused]] Failure failure_of(const std::function<void()> &body) {
    try {
        body();
    } catch (const Error &e) {
        return {e.status(), e.what()};
    }
    return {};
}

[[maybe_unused]] std::string slurp(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

[[maybe_unused]] void spill(const std::string &path, const std::string &text) {
    std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

constexpr std::int64_t output_rows = 101, output_cols = 7, output_stride = 11, input_rows = 5, input_cols = 3;

/// Content whose every value follows from its place and a generation.
struct Sample {
    std::vector<float> output, input;
    std::vector<std::int64_t> counts;
    std::vector<unsigned char> flags;
    CheckpointContent content;

    explicit Sample(int generation) {
        output.assign(static_cast<std::size_t>(output_rows * output_stride), -1.0f);
        for (std::int64_t r = 0; r < output_rows; ++r)
            for (std::int64_t c = 0; c < output_cols; ++c)
                output[static_cast<std::size_t>(r * output_stride + c)] = value(generation, r, c);
        input.resize(static_cast<std::size_t>(input_rows * input_cols));
        std::iota(input.begin(), input.end(), static_cast<float>(generation));
        counts = {generation, -1, INT64_MAX, INT64_MIN};
        flags = {1, 2, static_cast<unsigned char>(generation)};
        content.meta = "{\"steps\":" + std::to_string(generation) + ",\"full\":true,\"samples_seen\":77}";
        content.tensors = {
            {"flags", DType::u8, 1, 3, 0, 1, flags.data(), 3},
            {"output.weight", DType::f32, output_rows, output_cols, 0, output_rows, output.data(), output_stride},
            {"input.weight", DType::f32, input_rows, input_cols, 0, input_rows, input.data(), input_cols},
            {"counts", DType::i64, 4, 1, 0, 4, counts.data(), 1},
        };
        content.files = {{"labels.txt", "a\nb\n"}, {"empty.txt", ""}};
    }
    static float value(int generation, std::int64_t r, std::int64_t c) {
        return static_cast<float>(generation * 10000 + r * 10 + c);
    }
};

SaveOptions small_shards() {
    SaveOptions options;
    options.shard_bytes = 1000;
    options.block_bytes = 512;
    return options;
}

/// Does the checkpoint hold just what Sample(generation) says?
bool holds(const std::string &dir, int generation) {
    const Sample sample(generation);
    const CheckpointReader reader(dir);
    reader.verify();
    std::vector<float> output(static_cast<std::size_t>(output_rows * output_stride), -1.0f), input(sample.input.size());
    std::vector<std::int64_t> counts(4);
    std::vector<unsigned char> flags(3);
    reader.read_rows("output.weight", 0, output_rows, output.data(), output_stride);
    reader.read_rows("input.weight", 0, input_rows, input.data(), input_cols);
    reader.read_rows("counts", 0, 4, counts.data(), 1);
    reader.read_rows("flags", 0, 1, flags.data(), 3);
    return output == sample.output && input == sample.input && counts == sample.counts && flags == sample.flags &&
           Meta(reader.meta()).get_int("steps") == generation && reader.read_file("labels.txt") == "a\nb\n" &&
           reader.read_file("empty.txt").empty();
}

} // namespace

static void test_checkpoint__gives_back_what_was_written(void **) {
    bool one_shard = false, many_shards = false;
    int shards = 0;
    {
        const Scratch scratch;
        write_checkpoint(scratch / "a", Sample(1).content);
        one_shard = holds(scratch / "a", 1);
        write_checkpoint(scratch / "b", Sample(2).content, small_shards());
        many_shards = holds(scratch / "b", 2);
        shards = CheckpointReader(scratch / "b").shard_count();
    }
    assert_true(one_shard);
    assert_true(many_shards);
    assert_int_equal(shards, 3); // of 1000 bytes: counts and 34 rows of 28, 35 rows, 32 rows and the rest
}

static void test_checkpoint__replaces_an_older_one(void **) {
    bool first = false, second = false;
    std::size_t entries = 0;
    {
        const Scratch scratch;
        write_checkpoint(scratch / "c", Sample(1).content);
        first = holds(scratch / "c", 1);
        write_checkpoint(scratch / "c", Sample(2).content, small_shards());
        second = holds(scratch / "c", 2);
        for ([[maybe_unused]] const auto &entry : fs::directory_iterator(scratch.path())) ++entries;
    }
    assert_true(first);
    assert_true(second);
    assert_int_equal(entries, 1);
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint__gives_back_what_was_written),
        cmocka_unit_test(test_checkpoint__replaces_an_older_one),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, nullptr, nullptr);
}
