// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint_ranks.hpp"

#include <cstring>
#include <optional>

namespace dslide {
namespace {

/// Numbers and texts in a row of bytes, for ranks of one version and byte order.
class Packer {
public:
    void number(std::int64_t value) { append(&value, sizeof value); }
    void text(const std::string &value) {
        number(static_cast<std::int64_t>(value.size()));
        append(value.data(), value.size());
    }
    void numbers(const std::vector<std::uint64_t> &values) {
        number(static_cast<std::int64_t>(values.size()));
        append(values.data(), values.size() * sizeof(std::uint64_t));
    }
    const std::vector<std::byte> &bytes() const { return bytes_; }

private:
    void append(const void *data, std::size_t size) {
        const std::size_t at = bytes_.size();
        bytes_.resize(at + size);
        if (size > 0) std::memcpy(bytes_.data() + at, data, size);
    }
    std::vector<std::byte> bytes_;
};

class Unpacker {
public:
    explicit Unpacker(const std::byte *bytes) : at_(bytes) {}
    std::int64_t number() {
        std::int64_t value;
        take(&value, sizeof value);
        return value;
    }
    std::string text() {
        std::string value(static_cast<std::size_t>(number()), '\0');
        take(value.data(), value.size());
        return value;
    }
    std::vector<std::uint64_t> numbers() {
        std::vector<std::uint64_t> values(static_cast<std::size_t>(number()));
        take(values.data(), values.size() * sizeof(std::uint64_t));
        return values;
    }

private:
    void take(void *to, std::size_t size) {
        if (size > 0) std::memcpy(to, at_, size);
        at_ += size;
    }
    const std::byte *at_;
};

void pack(const ShardRecord &shard, Packer &out) {
    out.text(shard.file.name);
    out.number(shard.file.size);
    out.numbers(shard.file.blocks);
    out.number(static_cast<std::int64_t>(shard.parts.size()));
    for (const TensorPart &part : shard.parts) {
        out.text(part.name);
        for (const std::int64_t value : {static_cast<std::int64_t>(part.type), part.rows, part.cols, part.row_begin,
                                         part.row_end, part.col_begin, part.col_begin + part.col_count()})
            out.number(value);
    }
}

ShardRecord unpack(Unpacker &in) {
    ShardRecord shard;
    shard.file.name = in.text();
    shard.file.size = in.number();
    shard.file.blocks = in.numbers();
    shard.parts.resize(static_cast<std::size_t>(in.number()));
    for (TensorPart &part : shard.parts) {
        part.name = in.text();
        part.type = static_cast<DType>(in.number());
        for (std::int64_t *field :
             {&part.rows, &part.cols, &part.row_begin, &part.row_end, &part.col_begin, &part.col_end})
            *field = in.number();
    }
    return shard;
}

/// Every rank gets every rank's bytes, whose number only the giver knows. reader(rank, bytes).
template <class Reader>
void gather_bytes(Exchange &exchange, const std::vector<std::byte> &own, Reader &&reader) {
    std::vector<std::size_t> bytes(static_cast<std::size_t>(exchange.size()), sizeof(std::uint64_t));
    exchange.all_gather(Phase::checkpoint, bytes, [&](std::byte *to) {
        const std::uint64_t n = own.size();
        std::memcpy(to, &n, sizeof n);
    });
    for (int r = 0; r < exchange.size(); ++r) {
        std::uint64_t n;
        std::memcpy(&n, exchange.block(r), sizeof n);
        bytes[static_cast<std::size_t>(r)] = n;
    }
    exchange.all_gather(Phase::checkpoint, bytes, [&](std::byte *to) {
        if (!own.empty()) std::memcpy(to, own.data(), own.size());
    });
    for (int r = 0; r < exchange.size(); ++r)
        if (bytes[static_cast<std::size_t>(r)] > 0) reader(r, exchange.block(r));
}

} // namespace

void write_checkpoint(Exchange &exchange, const std::string &dir, const CheckpointContent &content,
                      const SaveOptions &options) {
    if (exchange.alone()) return write_checkpoint(dir, content, options);
    const bool first = exchange.rank() == 0;
    std::optional<PendingCheckpoint> pending;
    Packer place, records;
    exchange.local([&] {
        if (!first) return;
        pending.emplace(dir, options);
        place.text(pending->path());
    });
    std::string path;
    gather_bytes(exchange, place.bytes(), [&](int, const std::byte *bytes) { path = Unpacker(bytes).text(); });
    exchange.local([&] {
        const std::vector<ShardRecord> own = write_shards(path, exchange.rank(), content.tensors, options);
        records.number(static_cast<std::int64_t>(own.size()));
        for (const ShardRecord &shard : own) pack(shard, records);
    });
    std::vector<ShardRecord> all;
    gather_bytes(exchange, records.bytes(), [&](int, const std::byte *bytes) {
        Unpacker in(bytes);
        for (std::int64_t n = in.number(); n > 0; --n) all.push_back(unpack(in));
    });
    exchange.local([&] {
        if (first) pending->publish(content, all);
    });
    exchange.agree(Call::checkpoint, 0); // whether it was published
}

void save(Exchange &exchange, CheckpointStore &store, const std::string &name, const CheckpointContent &content,
          bool is_best) {
    if (exchange.alone()) return store.save(name, content, is_best);
    std::string dir, previous;
    exchange.local([&] {
        dir = store.path_of(name);
        if (exchange.rank() == 0) previous = store.begin(name);
    });
    write_checkpoint(exchange, dir, content, store.options());
    exchange.local([&] {
        if (exchange.rank() == 0) store.finish(name, previous, is_best);
    });
    exchange.agree(Call::checkpoint, 0);
}

} // namespace dslide
