// SPDX-License-Identifier: Apache-2.0
#include "cmocka.hpp"
#include "core/error.hpp"
#include "model/checkpoint.hpp"
#include "model/checkpoint_files.hpp"
#include "model/checkpoint_format.hpp"
#include "model/little_endian.hpp"
#include "model/meta.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <sched.h>
#include <string>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

using namespace dslide;
namespace fs = std::filesystem;

namespace {

/// A directory of its own for each test, removed at its end; in memory if possible, as thousands of syncs take minutes.
class Scratch {
public:
    Scratch() {
        const fs::path memory = "/dev/shm";
        const fs::path base = access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
        std::string pattern = (base / "dslide-test-XXXXXX").string();
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

Failure failure_of(const std::function<void()> &body) {
    try {
        body();
    } catch (const Error &e) {
        return {e.status(), e.what()};
    }
    return {};
}

std::string slurp(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void spill(const std::string &path, const std::string &text) {
    std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

constexpr std::int64_t output_rows = 101, output_cols = 7, output_stride = 11, input_rows = 5, input_cols = 3;

/// Content whose every value follows from its place and a generation.
struct Sample {
    std::vector<float> output, input;
    std::vector<std::int64_t> counts;
    std::vector<unsigned char> flags;
    CheckpointContent content; // borrows the values above

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

std::vector<std::string> entries_of(const std::string &dir) {
    std::vector<std::string> names;
    for (const auto &entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

/// Everything a reader can do with a checkpoint.
void use(const std::string &dir) {
    const CheckpointReader reader(dir);
    reader.verify();
}

Failure use_failure(const std::string &dir) {
    return failure_of([&] { use(dir); });
}

/// A manifest whose text was changed, with the checksum that fits again.
std::string sealed(std::string manifest) {
    const std::string open = ",\n\"xxh3\":\"";
    manifest.resize(manifest.rfind(open));
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx",
                  static_cast<unsigned long long>(checksum(manifest.data(), manifest.size())));
    return manifest + open + digits + "\"}\n";
}

std::string replaced(std::string text, const std::string &what, const std::string &with) {
    const std::size_t at = text.find(what);
    return at == std::string::npos ? "" : text.replace(at, what.size(), with);
}

/// A checkpoint of one shard with one tensor "t", whose header's text is given as it is.
void write_crafted(const std::string &dir, const std::string &header, std::size_t data_bytes,
                   std::uint64_t header_length) {
    std::string shard(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) shard[i] = static_cast<char>(header_length >> (8 * i) & 255);
    shard += header + std::string(data_bytes, 'd');
    Manifest manifest;
    manifest.block_bytes = max_block_bytes;
    manifest.meta = "{}";
    manifest.shards = {
        {"s.safetensors", static_cast<std::int64_t>(shard.size()), {checksum(shard.data(), shard.size())}}};
    manifest.tensors = {{"t", {DType::f32, 4, 2}, {{"s.safetensors", 0, 4, 0, 2}}}};
    fs::create_directory(dir);
    spill(dir + "/s.safetensors", shard);
    spill(dir + "/" + manifest_name, print_manifest(manifest));
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

static void test_checkpoint__reads_any_range_of_rows(void **) {
    int wrong = 0;
    {
        const Scratch scratch;
        write_checkpoint(scratch / "c", Sample(3).content, small_shards());
        const CheckpointReader reader(scratch / "c");
        for (std::int64_t begin = 0; begin <= output_rows; ++begin)
            for (std::int64_t end = begin; end <= output_rows; ++end) {
                std::vector<float> rows(static_cast<std::size_t>((end - begin) * output_cols + 1), -1.0f);
                reader.read_rows("output.weight", begin, end, rows.data(), output_cols);
                for (std::int64_t r = begin; r < end; ++r)
                    for (std::int64_t c = 0; c < output_cols; ++c)
                        wrong +=
                            rows[static_cast<std::size_t>((r - begin) * output_cols + c)] != Sample::value(3, r, c);
                wrong += rows.back() != -1.0f;
            }
    }
    assert_int_equal(wrong, 0);
}

static void test_checkpoint__several_writers_share_the_rows(void **) {
    int wrong = 0;
    {
        const Scratch scratch;
        const Sample sample(4);
        for (std::int64_t split = 0; split <= output_rows; ++split) {
            PendingCheckpoint pending(scratch / "c", small_shards());
            TensorPart first = sample.content.tensors[1], second = first;
            first.row_end = second.row_begin = split;
            second.data = sample.output.data() + split * output_stride;
            std::vector<ShardRecord> shards = write_shards(pending.path(), 1, {second}, small_shards());
            for (ShardRecord &shard :
                 write_shards(pending.path(), 0,
                              {first, sample.content.tensors[0], sample.content.tensors[2], sample.content.tensors[3]},
                              small_shards()))
                shards.push_back(std::move(shard));
            pending.publish(sample.content, shards);
            wrong += !holds(scratch / "c", 4);
        }
    }
    assert_int_equal(wrong, 0);
}

static void test_checkpoint__rows_that_nobody_wrote_or_two_wrote_are_refused(void **) {
    Failure hole, twice;
    bool left = true;
    {
        const Scratch scratch;
        const Sample sample(1);
        TensorPart part = sample.content.tensors[1];
        part.row_end = 50;
        hole = failure_of([&] { write_checkpoint(scratch / "c", {"{}", {part}, {}}); });
        twice = failure_of([&] { write_checkpoint(scratch / "c", {"{}", {sample.content.tensors[1], part}, {}}); });
        left = !entries_of(scratch.path()).empty();
    }
    assert_int_equal(hole.status, DSLIDE_E_INTERNAL);
    assert_true(hole.says("rows 50 .. 100 are missing"));
    assert_int_equal(twice.status, DSLIDE_E_INTERNAL);
    assert_true(twice.says("given twice"));
    assert_false(left);
}

static void test_checkpoint__bad_names_and_shapes_are_refused(void **) {
    int accepted = 0;
    {
        const Scratch scratch;
        const Sample sample(1);
        const TensorPart &good = sample.content.tensors[2];
        for (const char *name : {"", ".x", "a/b", "../x", "__metadata__", "manifest.json", "a b", "\xff"}) {
            TensorPart part = good;
            part.name = name;
            accepted += failure_of([&] { write_checkpoint(scratch / "c", {"{}", {part}, {}}); }).status == DSLIDE_OK;
            accepted += failure_of([&] {
                            write_checkpoint(scratch / "c", {"{}", {}, {{name, "x"}}});
                        }).status == DSLIDE_OK;
        }
        for (const char *meta : {"", "[]", "{", "{\"a\":1,\"a\":2}", "{\"a\":\"\xff\"}"})
            accepted += failure_of([&] { write_checkpoint(scratch / "c", {meta, {}, {}}); }).status == DSLIDE_OK;
        accepted += static_cast<int>(entries_of(scratch.path()).size());
    }
    assert_int_equal(accepted, 0);
}

static void test_checkpoint__a_target_that_is_no_checkpoint_is_not_touched(void **) {
    Failure directory, file, link, nameless, parentless;
    std::string note, kept;
    {
        const Scratch scratch;
        fs::create_directory(scratch / "mine");
        spill(scratch / "mine/note.txt", "dear diary");
        spill(scratch / "file", "text");
        fs::create_directory_symlink("mine", scratch / "link");
        const Sample sample(1);
        const CheckpointContent &content = sample.content;
        directory = failure_of([&] { write_checkpoint(scratch / "mine", content); });
        file = failure_of([&] { write_checkpoint(scratch / "file", content); });
        link = failure_of([&] { write_checkpoint(scratch / "link", content); });
        nameless = failure_of([&] { write_checkpoint(scratch / "mine/..", content); });
        parentless = failure_of([&] { write_checkpoint(scratch / "none/c", content); });
        note = slurp(scratch / "mine/note.txt");
        for (const std::string &entry : entries_of(scratch.path())) kept += entry + " ";
    }
    for (const Failure *failure : {&directory, &file, &link, &nameless, &parentless})
        assert_int_equal(failure->status, DSLIDE_E_IO);
    assert_true(directory.says("mine exists and is not a checkpoint"));
    assert_true(parentless.says("none: No such file or directory"));
    assert_string_equal(note.c_str(), "dear diary");
    assert_string_equal(kept.c_str(), "file link mine ");
}

static void test_checkpoint__each_flipped_bit_of_the_manifest_is_found(void **) {
    int unnoticed = 0;
    {
        const Scratch scratch;
        write_checkpoint(scratch / "c", Sample(1).content);
        const std::string path = scratch / "c/manifest.json", good = slurp(path);
        for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
            std::string bad = good;
            bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
            spill(path, bad);
            unnoticed += use_failure(scratch / "c").status != DSLIDE_E_FORMAT;
        }
    }
    assert_int_equal(unnoticed, 0);
}

static void test_checkpoint__each_flipped_bit_of_a_header_is_found(void **) {
    int unnoticed = 0;
    {
        const Scratch scratch;
        const Sample sample(1);
        write_checkpoint(scratch / "c", {"{}", {sample.content.tensors[0], sample.content.tensors[2]}, {}});
        const std::string path = scratch / "c/tensors-00000-00000.safetensors", good = slurp(path);
        const std::size_t header_bytes =
            8 + static_cast<unsigned char>(good[0]) + 256u * static_cast<unsigned char>(good[1]);
        for (std::size_t bit = 0; bit < 8 * header_bytes; ++bit) {
            std::string bad = good;
            bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
            spill(path, bad);
            unnoticed += failure_of([&] { CheckpointReader reader(scratch / "c"); }).status != DSLIDE_E_FORMAT;
        }
    }
    assert_int_equal(unnoticed, 0);
}

static void test_checkpoint__flipped_data_is_found_where_it_is_read(void **) {
    Failure damaged_rows, other_rows, verified;
    {
        const Scratch scratch;
        write_checkpoint(scratch / "c", Sample(1).content, small_shards());
        const std::string path = scratch / "c/tensors-00000-00001.safetensors"; // rows 34 .. 68
        std::string bytes = slurp(path);
        bytes.back() = static_cast<char>(bytes.back() ^ 1);
        spill(path, bytes);
        const CheckpointReader reader(scratch / "c");
        std::vector<float> row(output_cols);
        other_rows = failure_of([&] { reader.read_rows("output.weight", 0, 1, row.data(), output_cols); });
        damaged_rows = failure_of([&] { reader.read_rows("output.weight", 68, 69, row.data(), output_cols); });
        verified = failure_of([&] { reader.verify(); });
    }
    assert_int_equal(other_rows.status, DSLIDE_OK);
    assert_int_equal(damaged_rows.status, DSLIDE_E_FORMAT);
    assert_true(damaged_rows.says("tensors-00000-00001.safetensors: checksum mismatch in bytes"));
    assert_int_equal(verified.status, DSLIDE_E_FORMAT);
}

static void test_checkpoint__each_truncation_is_found(void **) {
    int unnoticed = 0, unclear = 0;
    {
        const Scratch scratch;
        write_checkpoint(scratch / "c", Sample(1).content, small_shards());
        for (const std::string &name : entries_of(scratch / "c")) {
            const std::string path = scratch / "c/" + name, good = slurp(path);
            const std::size_t step = name == "manifest.json" ? 1 : 7; // each length, and of the shards many
            for (std::size_t size = 0; size < good.size(); size += step) {
                spill(path, good.substr(0, size));
                const Failure failure = use_failure(scratch / "c");
                unnoticed += failure.status != DSLIDE_E_FORMAT;
                unclear += !failure.says("truncated") || !failure.says(name);
            }
            spill(path, good + "x");
            unnoticed += use_failure(scratch / "c").status != DSLIDE_E_FORMAT;
            spill(path, good);
        }
        unnoticed += use_failure(scratch / "c").status != DSLIDE_OK;
    }
    assert_int_equal(unnoticed, 0);
    assert_int_equal(unclear, 0);
}

static void test_checkpoint__each_missing_or_strange_file_is_found(void **) {
    int unnoticed = 0, unclear = 0;
    {
        const Scratch scratch;
        write_checkpoint(scratch / "c", Sample(1).content, small_shards());
        spill(scratch / "c/README", "files that the manifest does not name do not matter");
        for (const std::string &name : entries_of(scratch / "c")) {
            if (name == "README") continue;
            const std::string path = scratch / "c/" + name, aside = scratch / "aside";
            fs::rename(path, aside);
            const Failure missing = use_failure(scratch / "c");
            unclear += !missing.says(name == "manifest.json" ? "not a checkpoint" : name + ": missing");
            fs::create_symlink(aside, path);
            const Failure link = use_failure(scratch / "c");
            unclear += !link.says("symbolic link");
            fs::remove(path);
            mkfifo(path.c_str(), 0600); // opening it for reading would wait for a writer
            const Failure pipe = use_failure(scratch / "c");
            unclear += !pipe.says("not a plain file");
            fs::remove(path);
            fs::create_directory(path);
            const Failure directory = use_failure(scratch / "c");
            unclear += !directory.says("not a plain file");
            fs::remove(path);
            fs::rename(aside, path);
            for (const Failure *failure : {&missing, &link, &pipe, &directory})
                unnoticed += failure->status != DSLIDE_E_FORMAT;
        }
        unnoticed += use_failure(scratch / "c").status != DSLIDE_OK;
    }
    assert_int_equal(unnoticed, 0);
    assert_int_equal(unclear, 0);
}

static void test_checkpoint__a_file_that_shrinks_while_it_is_read_is_an_error(void **) {
    Failure before, during;
    {
        const Scratch scratch;
        write_checkpoint(scratch / "c", Sample(1).content);
        static bool shrink;
        static FileCalls calls;
        calls = system_calls();
        shrink = false;
        calls.pread = [](int fd, void *to, std::size_t size, off_t offset) {
            return shrink ? 0 : system_calls().pread(fd, to, size, offset);
        };
        const CheckpointReader reader(scratch / "c", false, calls);
        before = failure_of([&] { reader.verify(); });
        shrink = true;
        during = failure_of([&] { reader.verify(); });
    }
    assert_int_equal(before.status, DSLIDE_OK);
    assert_int_equal(during.status, DSLIDE_E_FORMAT);
    assert_true(during.says("truncated while it was read"));
}

struct Hostile {
    const char *what;
    std::string with;
    const char *text;
    dslide_status status = DSLIDE_E_FORMAT;
};

/// Number of rows of the table that were read, or refused in another way than the table says; each is printed.
static int wrong_answers(const std::string &dir, const std::vector<Hostile> &table) {
    const std::string path = dir + "/manifest.json", good = slurp(path);
    int wrong = 0;
    for (const Hostile &row : table) {
        spill(path, sealed(replaced(good, row.what, row.with)));
        const Failure failure = use_failure(dir);
        if (failure.status == row.status && failure.says(row.text) && failure.text.size() < 1000) continue;
        print_message("%s -> %.60s: status %d, \"%s\"\n", row.what, row.with.c_str(), failure.status,
                      failure.text.c_str());
        ++wrong;
    }
    spill(path, good);
    return wrong;
}

static void test_checkpoint__hostile_manifests_are_refused_each_with_its_reason(void **) {
    int wrong = 0;
    {
        const Scratch scratch;
        write_checkpoint(scratch / "c", Sample(1).content, small_shards());
        std::string deep, many = "0";
        for (int i = 0; i < 100000; ++i) deep += "[";
        for (std::size_t i = 0; i <= max_json_values; ++i) many += ",0";
        const std::string twice = "{\"name\":\"input.weight\",\"dtype\":\"F32\"";
        wrong = wrong_answers(
            scratch / "c",
            {
                {"\"version\":\"1.0\"", "\"version\":\"1.7\",\"new\":{\"field\":[1]}", "", DSLIDE_OK},
                {"\"version\":\"1.0\"", "\"version\":\"2.0\"",
                 "version 2.0 is newer than this library, which reads 1.x", DSLIDE_E_UNSUPPORTED},
                {"\"version\":\"1.0\"", "\"version\":\"0.9\"", "version"},
                {"\"version\":\"1.0\"", "\"version\":\"-1.0\"", "version"},
                {"\"version\":\"1.0\"", "\"version\":\"1.-1\"", "version"},
                {"\"version\":\"1.0\"", "\"version\":\"99999999999.0\"", "version"},
                {"\"version\":\"1.0\"", "\"version\":\"1\"", "version"},
                {"\"format\":\"dslide-checkpoint\"", "\"format\":\"other\"", "not a checkpoint manifest"},
                {"\"labels.txt\"", "\"../labels.txt\"", "not an allowed name"},
                {"\"labels.txt\"", "\"/etc/passwd\"", "not an allowed name"},
                {"\"labels.txt\"", "\"..\"", "not an allowed name"},
                {"\"labels.txt\"", "\"\"", "not an allowed name"},
                {"\"labels.txt\"", "\"a\\u0000b\"", "not an allowed name"},
                {"\"labels.txt\"", "\"" + std::string(100000, 'n') + "\"", "not an allowed name"},
                {"\"labels.txt\"", "\"empty.txt\"", "listed twice"},
                {"\"labels.txt\"", "\"tensors-00000-00000.safetensors\"", "listed twice"},
                {"\"labels.txt\"", "7", "is not a string"},
                {"\"labels.txt\",\"size\":4", "\"labels.txt\",\"size\":-1", "expected 0 .. 4611686018427387904"},
                {"\"labels.txt\",\"size\":4", "\"labels.txt\",\"size\":4.0", "is not an integer"},
                {"\"labels.txt\",\"size\":4", "\"labels.txt\",\"size\":\"4\"", "is not an integer"},
                {"\"labels.txt\",\"size\":4", "\"labels.txt\",\"size\":null", "is not an integer"},
                {"\"labels.txt\",\"size\":4", "\"labels.txt\"", "has no \"size\""},
                {"\"labels.txt\",\"size\":4", "\"labels.txt\",\"size\":4611686018427387904", "digits, expected"},
                {"\"labels.txt\",\"size\":4", "\"labels.txt\",\"size\":18446744073709551615", "expected 0 .."},
                {"\"labels.txt\",\"size\":4", "\"labels.txt\",\"size\":99999999999999999999999", "is not an integer"},
                {"\"labels.txt\",\"size\":4", "\"labels.txt\",\"size\":5", "truncated"},
                {"\"labels.txt\",\"size\":4", "\"labels.txt\",\"size\":0", "digits, expected"},
                {"\"block_bytes\":512", "\"block_bytes\":0", "block_bytes is 0"},
                {"\"block_bytes\":512", "\"block_bytes\":-512", "block_bytes is -512"},
                {"\"block_bytes\":512", "\"block_bytes\":4611686018427387904", "block_bytes is"},
                {"\"block_bytes\":512", "\"block_bytes\":1024", "digits, expected"},
                {"\"shards\":[", "\"shards\":[7,", "is not an object"},
                {"\"shards\":[", "\"shards\":{},\"other\":[", "is not an array"},
                {"\"shards\":", "\"shreds\":", "has no \"shards\""},
                {"\"meta\":{", "\"meta\":[{", "not valid JSON"},
                {"\"meta\":{", "\"meta\":[],\"more\":{", "is not an object"},
                {"\"meta\":{", "\"meta\":{\"full\":true,", "the key \"full\" comes twice"},
                {"\"meta\":{", "\"meta\":{\"deep\":" + deep + ",", "nested deeper than 32"},
                {"\"meta\":{", "\"meta\":{\"many\":[" + many + "],", "more than 1048576 values"},
                {"\"meta\":{", "\"meta\":{\"text\":\"\xff\",", "not valid JSON"},
                {"\"meta\":{", "\"meta\":{\"text\":NaN,", "not valid JSON"},
                {"\"dtype\":\"I64\"", "\"dtype\":\"BF16\"", "\"BF16\" is not known"},
                {"\"dtype\":\"I64\"", "\"dtype\":\"I32\"", "another type or shape"},
                {"\"dtype\":\"I64\",", "", "has no \"dtype\""},
                {"\"shape\":[4,1]", "\"shape\":[4]", "has 1 values, expected 2"},
                {"\"shape\":[4,1]", "\"shape\":[4,1,1]", "has 3 values, expected 2"},
                {"\"shape\":[4,1]", "\"shape\":[4,0]", "shape[1] is 0"},
                {"\"shape\":[4,1]", "\"shape\":[0,1]", "shape[0] is 0"},
                {"\"shape\":[4,1]", "\"shape\":[4,-1]", "shape[1] is -1"},
                {"\"shape\":[4,1]", "\"shape\":[4,2]", "another type or shape"},
                {"\"shape\":[4,1]", "\"shape\":[4,4611686018427387904]", "is too large"}, // 2^2 * 2^62 = 0 mod 2^64
                {"\"shape\":[4,1]", "\"shape\":[4,576460752303423488]", "is too large"},  // * 8 bytes = 0 mod 2^64
                {"\"shape\":[4,1]", "\"shape\":[5,1]", "rows 4 .. 4 are missing"},
                {"\"rows\":[34,69]", "\"rows\":[33,69]", "rows from 33 are given twice"},
                {"\"rows\":[34,69]", "\"rows\":[35,69]", "rows 34 .. 34 are missing"},
                {"\"rows\":[34,69]", "\"rows\":[34,34]", "is empty"},
                {"\"rows\":[34,69]", "\"rows\":[34,20]", "is empty"},
                {"\"rows\":[34,69]", "\"rows\":[34,68]", "rows 68 .. 68 are missing"},
                {"\"rows\":[69,101]", "\"rows\":[69,102]", "is 102, expected 1 .. 101"},
                {"\"rows\":[69,101]", "\"rows\":[69,101],\"cols\":[0,1]", "rows 69 .. 100 are missing"},
                {"\"rows\":[69,101]", "\"rows\":[69,101],\"cols\":[1,1]", "is empty"},
                {"\"rows\":[69,101]", "\"rows\":[69,101],\"cols\":[0,99999]", "expected 1 .. "},
                {"\"rows\":[69,101]", "\"rows\":[69,101],\"cols\":7", "is not an array"},
                {"\"shape\":[4,1]", "\"shape\":[4,2]", "another type or shape"},
                {"\"rows\":[69,101]", "\"rows\":[69,100]", "rows 100 .. 100 are missing"},
                {"\"rows\":[0,34]", "\"rows\":[-1,34]", "is -1"},
                {"\"rows\":[0,34]},{\"shard\":\"tensors-00000-00001",
                 "\"rows\":[0,34]},{\"shard\":\"tensors-00000-00000", "is twice in"},
                {"\"rows\":[0,34]},{\"shard\":\"tensors-00000-00001", "\"rows\":[0,34]},{\"shard\":\"labels",
                 "is not one of the shards"},
                {"\"rows\":[0,34]},{\"shard\":\"tensors-00000-00001", "\"rows\":[0,34]},{\"shard\":\"../x",
                 "not an allowed name"},
                {"{\"name\":\"flags\",\"dtype\":\"U8\"", twice.c_str(), "listed twice"},
                {"{\"name\":\"flags\"", "{\"name\":\"flegs\"", "flegs is missing in its header"},
                {"\"parts\":[{\"shard\"", "\"parts\":[{},{\"shard\"", "has no \"rows\""},
                {"\"parts\":", "\"prats\":", "has no \"parts\""},
                {"\n\"meta\"", "]\n\"meta\"", "not valid JSON"},
            });
        std::string big = slurp(scratch / "c/manifest.json");
        big.insert(1, static_cast<std::size_t>(max_manifest_bytes), ' ');
        spill(scratch / "c/manifest.json", big);
        wrong += !use_failure(scratch / "c").says("are allowed");
    }
    assert_int_equal(wrong, 0);
}

static void test_checkpoint__a_newer_version_may_end_in_another_way(void **) {
    Failure newer, damaged;
    {
        const Scratch scratch;
        fs::create_directory(scratch / "c");
        spill(scratch / "c/manifest.json",
              "{\"format\":\"dslide-checkpoint\",\"version\":\"3.1\",\"signature\":\"?\"}");
        newer = use_failure(scratch / "c");
        spill(scratch / "c/manifest.json",
              "{\"format\":\"dslide-checkpoint\",\"version\":\"1.1\",\"signature\":\"?\"}");
        damaged = use_failure(scratch / "c");
    }
    assert_int_equal(newer.status, DSLIDE_E_UNSUPPORTED);
    assert_true(newer.says("3.1 is newer"));
    assert_int_equal(damaged.status, DSLIDE_E_FORMAT);
    assert_true(damaged.says("truncated or damaged"));
}

static void test_checkpoint__hostile_shards_are_refused_each_with_its_reason(void **) {
    // What is right: t is 4 x 2 F32, so 32 bytes.
    const std::string meta = "\"__metadata__\":{\"t\":\"0:4/4\",\"u\":\"0:1/1\"}";
    const std::string shape = "\"dtype\":\"F32\",\"shape\":[4,2]";
    const std::string t = "\"t\":{" + shape + ",\"data_offsets\":[0,32]}",
                      u = ",\"u\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":";
    struct Row {
        std::string header;
        std::size_t data;
        const char *text;
        std::int64_t length = -1;
    };
    const std::vector<Row> table = {
        {"{" + meta + "," + t + "}", 32, ""},
        {"{" + meta + "," + t + "}", 33, "the tensors end at byte 32, the data at 33"},
        {"{" + meta + "," + t + "}", 31, "data_offsets[1] is 32"},
        {"{" + meta + "," + t + "}", 0, "data_offsets[1] is 32"},
        {"{" + meta + "," + t + u + "[32,33]}}", 33, "u is not in the manifest"},
        {"{" + meta + "," + t + u + "[31,32]}}", 32, "inside the data before it"},
        {"{" + meta + "," + t + u + "[33,34]}}", 34, "with a hole after"},
        {"{" + meta + "," + t + u + "[33,32]}}", 34, "data_offsets span -1 bytes"},
        {"{" + meta + "," + t + "," + t + "}", 32, "the key \"t\" comes twice"},
        {"{" + meta + ",\"t\":{" + shape + ",\"data_offsets\":[0,28]}}", 32, "span 28 bytes, the shape needs 32"},
        {"{" + meta + ",\"t\":{" + shape + ",\"data_offsets\":[-4,28]}}", 32, "data_offsets[0] is -4"},
        {"{" + meta + ",\"t\":{" + shape + ",\"data_offsets\":[1,33]}}", 33, "with a hole after"},
        {"{" + meta + ",\"t\":{" + shape + ",\"data_offsets\":[0]}}", 32, "has 1 values, expected 2"},
        {"{" + meta + ",\"t\":{" + shape + "}}", 32, "has no \"data_offsets\""},
        {"{" + meta + ",\"t\":{\"dtype\":\"F64\",\"shape\":[4,1],\"data_offsets\":[0,32]}}", 32,
         "\"F64\" is not known"},
        {"{" + meta + ",\"t\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}}", 32,
         "another type or shape"},
        {"{" + meta + ",\"t\":{\"dtype\":\"I32\",\"shape\":[4,2],\"data_offsets\":[0,32]}}", 32,
         "another type or shape"},
        {"{" + meta + ",\"t\":{\"dtype\":\"F32\",\"shape\":[0,2],\"data_offsets\":[0,0]}}", 0, "shape[0] is 0"},
        {"{" + meta + ",\"t\":{\"dtype\":\"F32\",\"shape\":[4,4611686018427387904],\"data_offsets\":[0,0]}}", 0,
         "is too large"},
        {"{" + meta + ",\"t\":7}", 32, "t is not an object"},
        {"{" + meta + ",\"../t\":{}}", 32, "not an allowed tensor name"},
        {"{" + t + "}", 32, "has no \"__metadata__\""},
        {"{\"__metadata__\":{\"t\":\"1:5/5\"}," + t + "}", 32, "other rows or columns than the manifest"},
        {"{\"__metadata__\":{\"t\":7}," + t + "}", 32, "is not a string"},
        {"{\"__metadata__\":7," + t + "}", 32, "is not an object"},
        {"{" + meta + "}", 0, "t is missing in its header"},
        {" {" + meta + "," + t + "}", 32, "not a safetensors header"},
        {"[]", 32, "not a safetensors header"},
        {"", 32, "not a safetensors header"},
        {"{" + meta + "," + t + "}", 32, "header of 1000 bytes", 1000},
        {"{" + meta + "," + t + "}", 32, "header of 18446744073709551615 bytes", INT64_MIN}, // stands for 2^64 - 1
        {"{" + meta + "," + t + "}", 32, "header of 9223372036854775807 bytes", INT64_MAX},
        {"{" + std::string(17000000, ' ') + "}", 32, "header of 17000002 bytes"},
    };
    int wrong = 0;
    {
        const Scratch scratch;
        int n = 0;
        for (const Row &row : table) {
            const std::string dir = scratch / std::to_string(n++);
            const std::uint64_t length = row.length == INT64_MIN ? UINT64_MAX
                                         : row.length < 0        ? row.header.size()
                                                                 : static_cast<std::uint64_t>(row.length);
            write_crafted(dir, row.header, row.data, length);
            const Failure failure = use_failure(dir);
            const dslide_status expected = *row.text ? DSLIDE_E_FORMAT : DSLIDE_OK;
            if (failure.status == expected && failure.says(row.text)) continue;
            print_message("%.200s: status %d, \"%s\"\n", row.header.c_str(), failure.status, failure.text.c_str());
            ++wrong;
        }
    }
    assert_int_equal(wrong, 0);
}

static void test_checkpoint__what_is_no_checkpoint_is_called_so(void **) {
    Failure missing, file, empty, other;
    {
        const Scratch scratch;
        spill(scratch / "file", "x");
        fs::create_directory(scratch / "empty");
        fs::create_directory(scratch / "other");
        spill(scratch / "other/manifest.json", "{\"name\":\"a web page\",\"icons\":[],\"start_url\":\".\"}");
        missing = use_failure(scratch / "missing");
        file = use_failure(scratch / "file");
        empty = use_failure(scratch / "empty");
        other = use_failure(scratch / "other");
    }
    assert_int_equal(missing.status, DSLIDE_E_IO);
    assert_true(missing.says("missing: No such file or directory"));
    for (const Failure *failure : {&file, &empty, &other}) {
        assert_int_equal(failure->status, DSLIDE_E_FORMAT);
        assert_true(failure->says("not a checkpoint"));
    }
}

static void test_checkpoint__unknown_tensors_files_and_rows_are_errors(void **) {
    Failure tensor, file, rows, stride;
    {
        const Scratch scratch;
        write_checkpoint(scratch / "c", Sample(1).content);
        const CheckpointReader reader(scratch / "c");
        float row[output_cols];
        tensor = failure_of([&] { reader.shape("none"); });
        file = failure_of([&] { reader.read_file("none"); });
        rows = failure_of([&] { reader.read_rows("output.weight", 101, 102, row, output_cols); });
        stride = failure_of([&] { reader.read_rows("output.weight", 0, 1, row, output_cols - 1); });
    }
    assert_int_equal(tensor.status, DSLIDE_E_FORMAT);
    assert_int_equal(file.status, DSLIDE_E_FORMAT);
    assert_int_equal(rows.status, DSLIDE_E_ARGUMENT);
    assert_int_equal(stride.status, DSLIDE_E_ARGUMENT);
}

/// A table whose n-th call fails with an error; counts from 1. With n = 0 all calls pass, and are counted.
struct Faults {
    static inline int n, made, error;
    static inline bool can_exchange;

    static bool hit() {
        if (++made != n) return false;
        errno = error;
        return true;
    }
    static FileCalls table(int fail_at, int with_error, bool exchange = true) {
        n = fail_at;
        made = 0;
        error = with_error;
        can_exchange = exchange;
        FileCalls calls;
        calls.open = [](int dir, const char *name, int flags, mode_t mode) {
            return hit() ? -1 : system_calls().open(dir, name, flags, mode);
        };
        calls.close = [](int fd) { // the descriptor is gone also where close fails
            const bool fails = hit();
            const int result = system_calls().close(fd);
            if (fails) errno = error;
            return fails ? -1 : result;
        };
        calls.pread = [](int fd, void *to, std::size_t size, off_t offset) {
            return hit() ? -1 : system_calls().pread(fd, to, size, offset);
        };
        calls.write = [](int fd, const void *from, std::size_t size) { // always short
            return hit() ? -1 : system_calls().write(fd, from, size / 2 + 1);
        };
        calls.fsync = [](int fd) { return hit() ? -1 : system_calls().fsync(fd); };
        calls.flock = [](int fd, int operation) { return hit() ? -1 : system_calls().flock(fd, operation); };
        calls.stat = [](int dir, const char *name, struct stat *out, int flags) {
            return hit() ? -1 : system_calls().stat(dir, name, out, flags);
        };
        calls.mkdir = [](int dir, const char *name, mode_t mode) {
            return hit() ? -1 : system_calls().mkdir(dir, name, mode);
        };
        calls.rename = [](int dir, const char *from, const char *to, unsigned flags) {
            if (hit()) return -1;
            if (flags == 0 || can_exchange) return system_calls().rename(dir, from, to, flags);
            errno = EINVAL;
            return -1;
        };
        calls.unlink = [](int dir, const char *name, int flags) {
            return hit() ? -1 : system_calls().unlink(dir, name, flags);
        };
        calls.symlink = [](const char *target, int dir, const char *name) {
            return hit() ? -1 : system_calls().symlink(target, dir, name);
        };
        calls.readlink = [](int dir, const char *name, char *to, std::size_t size) {
            return hit() ? -1 : system_calls().readlink(dir, name, to, size);
        };
        calls.list = [](int dir, std::vector<std::string> *names) {
            return hit() ? -1 : system_calls().list(dir, names);
        };
        return calls;
    }
};

struct SweepResult {
    int calls = 0, failures = 0, wrong = 0;
};

/// Saves generation 2, with call n failing, n = 1, 2, ... until no call is left; with or without an older checkpoint.
static SweepResult sweep_write(int error, bool has_older, bool can_exchange) {
    SweepResult result;
    for (int n = 1;; ++n) {
        const Scratch scratch;
        if (has_older) write_checkpoint(scratch / "c", Sample(1).content);
        const FileCalls calls = Faults::table(n, error, can_exchange);
        SaveOptions options = small_shards();
        options.calls = &calls;
        const Failure failure = failure_of([&] { write_checkpoint(scratch / "c", Sample(2).content, options); });
        const bool all_passed = Faults::made < n;
        const bool is_old =
            has_older ? fs::exists(scratch / "c") && holds(scratch / "c", 1) : !fs::exists(scratch / "c");
        const bool is_new = !is_old && holds(scratch / "c", 2);
        const bool as_told = failure.status == DSLIDE_OK ? is_new : failure.status == DSLIDE_E_IO && is_old;
        const bool named = failure.status == DSLIDE_OK || failure.says(scratch.path());
        write_checkpoint(scratch / "c", Sample(3).content);
        const bool clean = holds(scratch / "c", 3) && entries_of(scratch.path()).size() == 1;
        result.failures += failure.status != DSLIDE_OK;
        if (!as_told || !named || !clean || (all_passed && failure.status != DSLIDE_OK)) {
            print_message("call %d, error %d, older %d, exchange %d: status %d \"%s\", %s%s\n", n, error, has_older,
                          can_exchange, failure.status, failure.text.c_str(),
                          is_old   ? "old"
                          : is_new ? "new"
                                   : "neither",
                          clean ? "" : ", leftovers");
            ++result.wrong;
        }
        if (all_passed) {
            result.calls = n - 1;
            return result;
        }
    }
}

static void test_checkpoint__any_failing_call_leaves_the_old_or_the_new_one(void **) {
    struct Case {
        int error;
        bool has_older, can_exchange;
    };
    int wrong = 0, calls = 0, failures = 0;
    // ENOSPC stands for all errors; EINVAL and ENOENT are those that the code itself looks at.
    for (const Case &c : {Case{ENOSPC, false, true}, Case{ENOSPC, true, true}, Case{ENOSPC, true, false},
                          Case{EINVAL, true, true}, Case{ENOENT, true, true}}) {
        const SweepResult result = sweep_write(c.error, c.has_older, c.can_exchange);
        wrong += result.wrong;
        calls += result.calls;
        failures += result.failures;
    }
    assert_int_equal(wrong, 0);
    assert_true(calls > 5 * 50);           // else the table is not used
    assert_true(failures > calls * 2 / 3); // the rest: cleaning up, and closing what was only read
}

static void test_checkpoint__interrupted_calls_are_repeated(void **) {
    int wrong = 0, failures = 0, calls = 0;
    for (const bool has_older : {false, true}) {
        const SweepResult result = sweep_write(EINTR, has_older, true);
        wrong += result.wrong;
        failures += result.failures;
        calls += result.calls;
    }
    assert_int_equal(wrong, 0);
    assert_true(calls > 100);
    assert_int_equal(failures, 2); // the rename of each
}

static void test_checkpoint__a_write_that_writes_nothing_is_an_error(void **) {
    Failure failure;
    {
        const Scratch scratch;
        FileCalls calls = system_calls();
        calls.write = [](int, const void *, std::size_t) { return ssize_t{0}; };
        SaveOptions options;
        options.calls = &calls;
        failure = failure_of([&] { write_checkpoint(scratch / "c", Sample(1).content, options); });
    }
    assert_int_equal(failure.status, DSLIDE_E_IO);
    assert_true(failure.says("Input/output error"));
}

static void test_checkpoint__any_failing_call_of_the_reader_is_an_error(void **) {
    int wrong = 0, n = 1;
    {
        const Scratch scratch;
        CheckpointStore store(scratch / "run");
        store.prepare();
        store.save("epoch-000001", Sample(1).content, true);
        for (bool all_passed = false; !all_passed; ++n) {
            const FileCalls calls = Faults::table(n, EIO);
            const Failure failure = failure_of([&] { CheckpointReader(scratch / "run", false, calls).verify(); });
            all_passed = Faults::made < n;
            wrong += failure.status != DSLIDE_OK && failure.status != DSLIDE_E_IO;
            wrong += all_passed && failure.status != DSLIDE_OK;
        }
    }
    assert_int_equal(wrong, 0);
    assert_true(n > 20);
}

/// Records what is created, synced and renamed, in order.
struct Trace {
    static inline std::vector<std::string> steps;

    static std::string name_of(int fd) {
        char name[4096] = "";
        const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name);
        const fs::path path(std::string(name, length < 0 ? 0 : static_cast<std::size_t>(length)));
        return path.extension() == ".tmp" ? "pending" : path.filename().string();
    }
    static FileCalls table() {
        FileCalls calls = system_calls();
        calls.open = [](int dir, const char *name, int flags, mode_t mode) {
            if (flags & O_CREAT) steps.push_back(std::string("create ") + name);
            return system_calls().open(dir, name, flags, mode);
        };
        calls.fsync = [](int fd) {
            steps.push_back("sync " + name_of(fd));
            return system_calls().fsync(fd);
        };
        calls.rename = [](int dir, const char *from, const char *to, unsigned flags) {
            steps.push_back(std::string("rename to ") + to);
            return system_calls().rename(dir, from, to, flags);
        };
        calls.symlink = [](const char *target, int dir, const char *name) {
            steps.push_back(std::string("link to ") + target);
            return system_calls().symlink(target, dir, name);
        };
        calls.unlink = [](int dir, const char *name, int flags) {
            if (flags & AT_REMOVEDIR) steps.push_back("remove");
            return system_calls().unlink(dir, name, flags);
        };
        return calls;
    }
};

static void test_store__syncs_before_it_renames_and_removes_last(void **) {
    std::vector<std::string> steps;
    {
        const Scratch scratch;
        fs::create_directory(scratch / "run");
        const FileCalls calls = Trace::table();
        SaveOptions options;
        options.calls = &calls;
        CheckpointStore store(scratch / "run", options);
        store.save("step-1", Sample(1).content, false);
        store.save("step-2", Sample(1).content, false);
        Trace::steps.clear();
        store.save("step-3", Sample(1).content, true);
        steps = Trace::steps;
        for (std::string &step : steps) // the temporary names are other ones each time
            if (step.find(".dslide.") != std::string::npos) step = "rename away";
    }
    const std::vector<std::string> expected = {"create tensors-00000-00000.safetensors",
                                               "sync tensors-00000-00000.safetensors",
                                               "create empty.txt",
                                               "sync empty.txt",
                                               "create labels.txt",
                                               "sync labels.txt",
                                               "create manifest.json",
                                               "sync manifest.json",
                                               "sync pending",
                                               "rename to step-3",
                                               "sync run",
                                               "link to step-3",
                                               "rename to latest",
                                               "sync run",
                                               "link to step-3",
                                               "rename to best",
                                               "sync run",
                                               "rename away",
                                               "remove"};
    assert_true(steps == expected);
}

static void test_checkpoint__a_full_disk_is_an_error(void **) {
    Failure failure;
    bool mounted = false, old_holds = false, clean = false;
    {
        const Scratch scratch;
        const std::string disk = scratch / "disk";
        fs::create_directory(disk);
        // Only this process sees the mount, and it ends with it.
        mounted = unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                  mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=256k") == 0;
        if (mounted) {
            Sample sample(2);
            CheckpointContent &large = sample.content;
            large.files["large"] = std::string(1 << 20, 'x');
            write_checkpoint(disk + "/c", Sample(1).content);
            failure = failure_of([&] { write_checkpoint(disk + "/c", large); });
            old_holds = holds(disk + "/c", 1);
            clean = entries_of(disk).size() == 1;
            umount2(disk.c_str(), MNT_DETACH);
        }
    }
    if (!mounted) {
        print_message("skipped: no right to mount a tmpfs\n");
        skip();
    }
    assert_int_equal(failure.status, DSLIDE_E_IO);
    assert_true(failure.says("large: No space left on device"));
    assert_true(old_holds);
    assert_true(clean);
}

static void test_checkpoint__a_file_size_limit_is_an_error(void **) {
    Failure failure;
    bool old_holds = false, clean = false;
    {
        const Scratch scratch;
        Sample sample(2);
        CheckpointContent &large = sample.content;
        large.files["large"] = std::string(1 << 20, 'x');
        write_checkpoint(scratch / "c", Sample(1).content);
        const auto handler = std::signal(SIGXFSZ, SIG_IGN); // else the kernel kills the process
        rlimit before{};
        getrlimit(RLIMIT_FSIZE, &before);
        const rlimit low{65536, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &low);
        failure = failure_of([&] { write_checkpoint(scratch / "c", large); });
        setrlimit(RLIMIT_FSIZE, &before);
        std::signal(SIGXFSZ, handler);
        old_holds = holds(scratch / "c", 1);
        clean = entries_of(scratch.path()).size() == 1;
    }
    assert_int_equal(failure.status, DSLIDE_E_IO);
    assert_true(failure.says("large: File too large"));
    assert_true(old_holds);
    assert_true(clean);
}

static void test_checkpoint__leftovers_go_but_only_ours_and_only_dead_ones(void **) {
    std::string names;
    bool pending_lives = false;
    {
        const Scratch scratch;
        for (const char *name : {"c.0123abcd.dslide.tmp", "d.0123abcd.dslide.tmp", "c.tmp", "c.0123abcX.dslide.tmp",
                                 "c.0123abcd.dslide.old", "c.00000000.dslide.tmp"}) {
            fs::create_directory(scratch / name);
            spill((scratch / name) + "/part", "x");
        }
        fs::create_directory(scratch / "c.00000000.dslide.tmp/inner"); // we make no directories inside: not ours
        const PendingCheckpoint pending(scratch / "c");
        write_checkpoint(scratch / "c", Sample(1).content);
        pending_lives = fs::exists(pending.path());
        for (const std::string &entry : entries_of(scratch.path()))
            if (entry != fs::path(pending.path()).filename()) names += entry + " ";
    }
    assert_true(pending_lives);
    assert_string_equal(names.c_str(), "c c.00000000.dslide.tmp c.0123abcX.dslide.tmp c.tmp d.0123abcd.dslide.tmp ");
}

static void test_checkpoint__one_moved_aside_is_found_and_kept_until_replaced(void **) {
    bool found = false, kept = false, replaced_by_new = false;
    std::size_t left = 0;
    {
        const Scratch scratch; // as after a kill between the two renames
        write_checkpoint(scratch / "c", Sample(1).content);
        fs::rename(scratch / "c", scratch / "c.0123abcd.dslide.old");
        found = holds(scratch / "c", 1);
        const FileCalls calls = Faults::table(60, EIO);
        SaveOptions options;
        options.calls = &calls;
        failure_of([&] { write_checkpoint(scratch / "c", Sample(2).content, options); });
        kept = holds(scratch / "c", 1) || holds(scratch / "c", 2);
        write_checkpoint(scratch / "c", Sample(3).content);
        replaced_by_new = holds(scratch / "c", 3);
        left = entries_of(scratch.path()).size();
    }
    assert_true(found);
    assert_true(kept);
    assert_true(replaced_by_new);
    assert_int_equal(left, 1);
}

static void test_store__keeps_best_latest_and_the_one_before(void **) {
    std::string names;
    bool best = false, latest = false, named = false;
    {
        const Scratch scratch;
        const std::string root = scratch / "runs/a/";
        CheckpointStore store(root);
        store.prepare();
        for (int epoch = 1; epoch <= 6; ++epoch) {
            char name[32];
            std::snprintf(name, sizeof name, "epoch-%06d", epoch);
            store.save(name, Sample(epoch).content, epoch <= 2);
        }
        best = Meta(CheckpointReader(root).meta()).get_int("steps") == 2;
        latest = Meta(CheckpointReader(root, true).meta()).get_int("steps") == 6;
        named = CheckpointReader(root, true).dir().find("epoch-000006") != std::string::npos;
        for (const std::string &entry : entries_of(root)) names += entry + " ";
    }
    assert_string_equal(names.c_str(), "best epoch-000002 epoch-000005 epoch-000006 latest ");
    assert_true(best);
    assert_true(latest);
    assert_true(named);
}

static void test_store__removes_nothing_that_is_not_its_own(void **) {
    std::string names;
    {
        const Scratch scratch;
        CheckpointStore store(scratch.path());
        fs::create_directory(scratch / "epoch-000000"); // no checkpoint
        write_checkpoint(scratch / "mine", Sample(1).content);
        write_checkpoint(scratch / "epoch-1-good", Sample(1).content);
        spill(scratch / "x.tmp", "");
        fs::create_directory(scratch / "other.0123abcd.dslide.tmp");
        fs::create_directory(scratch / "step-1.0123abcd.dslide.tmp");
        fs::create_symlink("nowhere", scratch / "latest.0123abcd.dslide.tmp");
        for (const char *name : {"step-000000001", "step-000000002", "step-000000003"})
            store.save(name, Sample(1).content, false);
        for (const std::string &entry : entries_of(scratch.path())) names += entry + " ";
    }
    assert_string_equal(names.c_str(), "epoch-000000 epoch-1-good latest mine other.0123abcd.dslide.tmp step-000000002 "
                                       "step-000000003 x.tmp ");
}

static void test_store__the_reader_takes_the_other_link_only_if_one_is_missing(void **) {
    bool fallback = false;
    Failure damaged, dangling, outside, name;
    {
        const Scratch scratch;
        CheckpointStore store(scratch / "run");
        store.prepare();
        store.save("epoch-000001", Sample(1).content, false);
        fallback = holds(scratch / "run", 1);
        store.save("epoch-000002", Sample(2).content, true);
        const std::string shard = scratch / "run/epoch-000002/tensors-00000-00000.safetensors";
        spill(shard, slurp(shard).substr(0, 100));
        damaged = use_failure(scratch / "run");
        fs::remove_all(scratch / "run/epoch-000002");
        dangling = use_failure(scratch / "run");
        fs::remove(scratch / "run/best");
        fs::create_symlink("../elsewhere", scratch / "run/best");
        outside = use_failure(scratch / "run");
        name = failure_of([&] { store.save("mine", Sample(1).content, false); });
    }
    assert_true(fallback);
    assert_int_equal(damaged.status, DSLIDE_E_FORMAT);
    assert_true(damaged.says("epoch-000002") && damaged.says("truncated"));
    assert_int_equal(dangling.status, DSLIDE_E_IO);
    assert_true(dangling.says("/best: ") && dangling.says("epoch-000002: No such file"));
    assert_int_equal(outside.status, DSLIDE_E_FORMAT);
    assert_true(outside.says("leads out of its directory"));
    assert_int_equal(name.status, DSLIDE_E_INTERNAL);
}

static void test_store__any_failing_call_leaves_loadable_links(void **) {
    int wrong = 0, n = 1;
    for (bool all_passed = false; !all_passed; ++n) {
        const Scratch scratch;
        CheckpointStore store(scratch.path());
        store.save("epoch-000001", Sample(1).content, true);
        store.save("epoch-000002", Sample(2).content, false);
        const FileCalls calls = Faults::table(n, EIO);
        SaveOptions options;
        options.calls = &calls;
        const Failure failure =
            failure_of([&] { CheckpointStore(scratch.path(), options).save("epoch-000003", Sample(3).content, true); });
        all_passed = Faults::made < n;
        const bool done = failure.status == DSLIDE_OK;
        const auto best = Meta(CheckpointReader(scratch.path()).meta()).get_int("steps");
        const auto latest = Meta(CheckpointReader(scratch.path(), true).meta()).get_int("steps");
        const bool loads = use_failure(scratch.path()).status == DSLIDE_OK &&
                           failure_of([&] { CheckpointReader(scratch.path(), true).verify(); }).status == DSLIDE_OK;
        store.save("epoch-000004", Sample(4).content, false);
        const bool clean = entries_of(scratch.path()).size() <= 5; // two links; the best, the latest, the one before
        if (!loads || !clean || (done && (best != 3 || latest != 3)) || (all_passed && !done)) {
            print_message("call %d: status %d \"%s\", best %d, latest %d\n", n, failure.status, failure.text.c_str(),
                          static_cast<int>(best), static_cast<int>(latest));
            ++wrong;
        }
    }
    assert_int_equal(wrong, 0);
    assert_true(n > 60);
}

static void test_store__prepare_finds_what_cannot_be_written(void **) {
    Failure failure, file, link;
    std::size_t left = 1;
    int n = 1, wrong = 0;
    {
        const Scratch scratch;
        spill(scratch / "file", "x");
        file = failure_of([&] { CheckpointStore(scratch / "file").prepare(); });
        fs::create_directories(scratch / "taken/best"); // where a link has to go
        link = failure_of([&] { CheckpointStore(scratch / "taken").prepare(); });
        for (bool all_passed = false; !all_passed; ++n) {
            const FileCalls calls = Faults::table(n, EROFS);
            SaveOptions options;
            options.calls = &calls;
            failure = failure_of([&] { CheckpointStore(scratch / "run", options).prepare(); });
            all_passed = Faults::made < n;
            wrong += all_passed && failure.status != DSLIDE_OK;
        }
        left = entries_of(scratch / "run").size();
    }
    assert_int_equal(file.status, DSLIDE_E_IO);
    assert_int_equal(link.status, DSLIDE_E_IO);
    assert_true(link.says("best exists and is not a symbolic link"));
    assert_int_equal(wrong, 0);
    assert_true(n > 6);
    assert_true(left <= 1); // the call that removes the probe was made to fail once
}

static void test_meta__gives_back_every_bit(void **) {
    bool same = true;
    Failure missing, type;
    {
        Meta meta;
        meta.set_bool("b", true);
        meta.set_int("least", INT64_MIN);
        meta.set_int("small", 5);
        meta.set_uint("most", UINT64_MAX);
        meta.set_number("tenth", 0.1);
        meta.set_number("tiny", 4.9406564584124654e-324);
        meta.set_number("whole", 3.0);
        meta.set_ints("widths", {128, 1, -7});
        const Meta back(meta.json());
        same = back.get_bool("b") && back.get_int("least") == INT64_MIN && back.get_uint("most") == UINT64_MAX &&
               back.get_number("tenth") == 0.1 && back.get_number("tiny") == 4.9406564584124654e-324 &&
               back.get_number("whole") == 3.0 && back.get_ints("widths") == std::vector<std::int64_t>{128, 1, -7} &&
               !back.has("none") && meta.get_uint("small") == 5 && back.get_uint("small") == 5;
        missing = failure_of([&] { back.get_int("none"); });
        type = failure_of([&] { back.get_int("most"); });
    }
    assert_true(same);
    assert_int_equal(missing.status, DSLIDE_E_FORMAT);
    assert_true(missing.says("\"none\""));
    assert_int_equal(type.status, DSLIDE_E_FORMAT);
}

static void test_little_endian__reverses_the_bytes_of_each_value(void **) {
    unsigned char wide[] = {1, 2, 3, 4, 5, 6, 7, 8}, narrow[] = {1, 2, 3, 4, 5, 6, 7, 8}, bytes[] = {1, 2};
    reverse_bytes(wide, 1, 8);
    reverse_bytes(narrow, 2, 4);
    reverse_bytes(bytes, 2, 1);
    const unsigned char reversed[] = {8, 7, 6, 5, 4, 3, 2, 1}, halves[] = {4, 3, 2, 1, 8, 7, 6, 5}, same[] = {1, 2};
    assert_memory_equal(wide, reversed, 8);
    assert_memory_equal(narrow, halves, 8);
    assert_memory_equal(bytes, same, 2);
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint__gives_back_what_was_written),
        cmocka_unit_test(test_checkpoint__replaces_an_older_one),
        cmocka_unit_test(test_checkpoint__reads_any_range_of_rows),
        cmocka_unit_test(test_checkpoint__several_writers_share_the_rows),
        cmocka_unit_test(test_checkpoint__rows_that_nobody_wrote_or_two_wrote_are_refused),
        cmocka_unit_test(test_checkpoint__bad_names_and_shapes_are_refused),
        cmocka_unit_test(test_checkpoint__a_target_that_is_no_checkpoint_is_not_touched),
        cmocka_unit_test(test_checkpoint__each_flipped_bit_of_the_manifest_is_found),
        cmocka_unit_test(test_checkpoint__each_flipped_bit_of_a_header_is_found),
        cmocka_unit_test(test_checkpoint__flipped_data_is_found_where_it_is_read),
        cmocka_unit_test(test_checkpoint__each_truncation_is_found),
        cmocka_unit_test(test_checkpoint__each_missing_or_strange_file_is_found),
        cmocka_unit_test(test_checkpoint__a_file_that_shrinks_while_it_is_read_is_an_error),
        cmocka_unit_test(test_checkpoint__hostile_manifests_are_refused_each_with_its_reason),
        cmocka_unit_test(test_checkpoint__a_newer_version_may_end_in_another_way),
        cmocka_unit_test(test_checkpoint__hostile_shards_are_refused_each_with_its_reason),
        cmocka_unit_test(test_checkpoint__what_is_no_checkpoint_is_called_so),
        cmocka_unit_test(test_checkpoint__unknown_tensors_files_and_rows_are_errors),
        cmocka_unit_test(test_checkpoint__any_failing_call_leaves_the_old_or_the_new_one),
        cmocka_unit_test(test_checkpoint__interrupted_calls_are_repeated),
        cmocka_unit_test(test_checkpoint__a_write_that_writes_nothing_is_an_error),
        cmocka_unit_test(test_checkpoint__any_failing_call_of_the_reader_is_an_error),
        cmocka_unit_test(test_store__syncs_before_it_renames_and_removes_last),
        cmocka_unit_test(test_checkpoint__a_full_disk_is_an_error),
        cmocka_unit_test(test_checkpoint__a_file_size_limit_is_an_error),
        cmocka_unit_test(test_checkpoint__leftovers_go_but_only_ours_and_only_dead_ones),
        cmocka_unit_test(test_checkpoint__one_moved_aside_is_found_and_kept_until_replaced),
        cmocka_unit_test(test_store__keeps_best_latest_and_the_one_before),
        cmocka_unit_test(test_store__removes_nothing_that_is_not_its_own),
        cmocka_unit_test(test_store__the_reader_takes_the_other_link_only_if_one_is_missing),
        cmocka_unit_test(test_store__any_failing_call_leaves_loadable_links),
        cmocka_unit_test(test_store__prepare_finds_what_cannot_be_written),
        cmocka_unit_test(test_meta__gives_back_every_bit),
        cmocka_unit_test(test_little_endian__reverses_the_bytes_of_each_value),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, nullptr, nullptr);
}
