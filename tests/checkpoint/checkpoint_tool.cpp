// SPDX-License-Identifier: Apache-2.0
// Saves and checks the checkpoints of sample.hpp, for the scripts of this folder.
//
//   write DIR GENERATION    writes one checkpoint
//   check DIR GENERATION    exit code 0 if the checkpoint holds what it should
//   loop ROOT FIRST         saves generations FIRST, FIRST + 1, ... to a store until killed; a line for each that is
//                           acknowledged: "saved GENERATION" or "saved GENERATION best"
//   loop-aside ROOT FIRST   the same as on a file system that cannot exchange two names
//   newest ROOT             checks `latest` and `best`, and prints their generations
#include "core/error.hpp"
#include "model/meta.hpp"
#include "sample.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

using namespace dslide;

template <class T>
static void check_tensor(const CheckpointReader &reader, const TensorPart &expected, const std::vector<T> &values) {
    const TensorShape shape = reader.shape(expected.name);
    if (shape.type != expected.type || shape.rows != expected.rows || shape.cols != expected.cols)
        throw std::runtime_error(expected.name + ": another type or shape");
    std::vector<T> found(values.size());
    reader.read_rows(expected.name, 0, shape.rows, found.data(), shape.cols);
    if (found != values) throw std::runtime_error(expected.name + ": other values");
}

static void check(const CheckpointReader &reader, std::int64_t generation) {
    const Sample sample(generation);
    reader.verify();
    check_tensor(reader, sample.content.tensors[0], sample.weight);
    check_tensor(reader, sample.content.tensors[1], sample.counts);
    check_tensor(reader, sample.content.tensors[2], sample.tables);
    check_tensor(reader, sample.content.tensors[3], sample.flags);
    for (const auto &[name, text] : sample.content.files)
        if (reader.read_file(name) != text) throw std::runtime_error(name + ": another text");
    if (Meta(reader.meta()).json() != sample.content.meta) throw std::runtime_error("another meta: " + reader.meta());
}

static const FileCalls &calls_without_exchange() {
    static const FileCalls calls = [] {
        FileCalls table = system_calls();
        table.rename = [](int dir, const char *from, const char *to, unsigned flags) {
            if (flags == 0) return system_calls().rename(dir, from, to, flags);
            errno = EINVAL;
            return -1;
        };
        return table;
    }();
    return calls;
}

static void loop(const std::string &root, std::int64_t generation, const FileCalls &calls) {
    SaveOptions options = Sample::options();
    options.calls = &calls;
    CheckpointStore store(root, options);
    store.prepare();
    for (;; ++generation) {
        const bool is_best = generation % 3 == 0;
        // Ten names in turn, so that saves replace checkpoints of the same name as well as make new ones.
        store.save("step-" + std::to_string(generation % 10), Sample(generation).content, is_best);
        std::printf("saved %lld%s\n", static_cast<long long>(generation), is_best ? " best" : "");
        std::fflush(stdout);
    }
}

static std::int64_t checked_generation(const std::string &root, bool latest) {
    const CheckpointReader reader(root, latest);
    const std::int64_t generation = Meta(reader.meta()).get_int("steps");
    check(reader, generation);
    return generation;
}

/// As two ranks write: the weights in two stripes of columns, each cut into shards.
static void write_striped(const std::string &dir, std::int64_t generation) {
    const Sample sample(generation);
    PendingCheckpoint pending(dir, Sample::options());
    std::vector<TensorPart> left = sample.content.tensors, right{sample.content.tensors[0]};
    left[0].col_end = right[0].col_begin = 1;
    right[0].data = sample.weight.data() + 1;
    std::vector<ShardRecord> shards = write_shards(pending.path(), 0, left, Sample::options());
    for (ShardRecord &shard : write_shards(pending.path(), 1, right, Sample::options()))
        shards.push_back(std::move(shard));
    pending.publish(sample.content, shards);
}

static int run(const std::string &command, const std::string &dir, std::int64_t generation) {
    if (command == "write")
        write_checkpoint(dir, Sample(generation).content, Sample::options());
    else if (command == "write-striped")
        write_striped(dir, generation);
    else if (command == "check")
        check(CheckpointReader(dir), generation);
    else if (command == "loop")
        loop(dir, generation, system_calls());
    else if (command == "loop-aside")
        loop(dir, generation, calls_without_exchange());
    else if (command == "newest")
        std::printf("latest %lld best %lld\n", static_cast<long long>(checked_generation(dir, true)),
                    static_cast<long long>(checked_generation(dir, false)));
    else
        return 2;
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    try {
        return run(argv[1], argv[2], argc > 3 ? std::atoll(argv[3]) : 0);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
