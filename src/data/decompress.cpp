// SPDX-License-Identifier: Apache-2.0
// Streaming decoders over a raw source. Memory is bounded whatever a header asks for: zlib's window is 32 KiB, zstd's
// at most 128 MiB (its own default limit), xz's limited below.
#include "data/source.hpp"

#include <algorithm>
#include <cstring>
#include <lzma.h>
#include <new>
#include <string_view>
#include <vector>
#include <zlib.h>
#include <zstd.h>

namespace dslide {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{128} << 10;
constexpr std::uint64_t xz_memory_limit = std::uint64_t{256} << 20; // xz -9 needs 65 MiB

// The bytes of a source, a buffer at a time.
class RawBytes {
public:
    explicit RawBytes(std::unique_ptr<ByteSource> source) : source_(std::move(source)), buffer_(buffer_bytes) {}

    /// Reads on until `count` bytes (at most buffer_bytes) are there or the end is reached.
    std::string_view peek(std::size_t count) {
        while (size_ - begin_ < count && !ended_) read_more();
        return {buffer_.data() + begin_, size_ - begin_};
    }
    void consume(std::size_t count) { begin_ += count; }

private:
    void read_more() {
        std::memmove(buffer_.data(), buffer_.data() + begin_, size_ - begin_);
        size_ -= begin_;
        begin_ = 0;
        const std::size_t count = source_->read(buffer_.data() + size_, buffer_.size() - size_);
        ended_ = count == 0;
        size_ += count;
    }

    std::unique_ptr<ByteSource> source_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0, size_ = 0;
    bool ended_ = false;
};

class BufferedSource final : public ByteSource {
public:
    explicit BufferedSource(RawBytes raw) : raw_(std::move(raw)) {}
    std::size_t read(char *to, std::size_t cap) override {
        const std::string_view bytes = raw_.peek(1);
        const std::size_t count = std::min(cap, bytes.size());
        if (count) std::memcpy(to, bytes.data(), count);
        raw_.consume(count);
        return count;
    }

private:
    RawBytes raw_;
};

[[noreturn]] void truncated(const char *kind) {
    throw DamagedInput{std::string("expected more ") + kind + " data, found the end of the file"};
}

[[noreturn]] void damaged(const char *kind, const char *detail) {
    throw DamagedInput{std::string("expected intact ") + kind + " data, found damage (" + detail + ")"};
}

class GzipSource final : public ByteSource {
public:
    explicit GzipSource(RawBytes raw) : raw_(std::move(raw)) {
        constexpr int gzip_only = 16;
        if (inflateInit2(&stream_, MAX_WBITS + gzip_only) != Z_OK) throw std::bad_alloc();
    }
    ~GzipSource() override { inflateEnd(&stream_); }

    std::size_t read(char *to, std::size_t cap) override {
        for (;;) {
            if (between_members_ && !next_member()) return 0;
            const std::string_view in = raw_.peek(1);
            stream_.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(in.data()));
            stream_.avail_in = static_cast<uInt>(in.size());
            stream_.next_out = reinterpret_cast<Bytef *>(to);
            stream_.avail_out = static_cast<uInt>(cap);
            const int result = inflate(&stream_, Z_NO_FLUSH);
            raw_.consume(in.size() - stream_.avail_in);
            const std::size_t count = cap - stream_.avail_out;
            between_members_ = result == Z_STREAM_END;
            if (count) return count; // a defect comes again at the next call
            if (result == Z_MEM_ERROR) throw std::bad_alloc();
            if (result == Z_BUF_ERROR && in.empty()) truncated("gzip");
            if (result != Z_OK && result != Z_STREAM_END)
                damaged("gzip", stream_.msg ? stream_.msg : "no reason given");
        }
    }

private:
    // Goes on to the member that follows; zeros after the last one are padding, as gzip itself takes them.
    bool next_member() {
        for (std::string_view in = raw_.peek(1); !in.empty(); in = raw_.peek(1)) {
            const std::size_t zeros = std::min(in.find_first_not_of('\0'), in.size());
            raw_.consume(zeros);
            if (zeros == in.size()) continue;
            if (in[zeros] != '\x1f') damaged("gzip", "other bytes after the last member");
            inflateReset(&stream_);
            between_members_ = false;
            return true;
        }
        return false;
    }

    RawBytes raw_;
    z_stream stream_{};
    bool between_members_ = false;
};

class XzSource final : public ByteSource {
public:
    explicit XzSource(RawBytes raw) : raw_(std::move(raw)) {
        if (lzma_stream_decoder(&stream_, xz_memory_limit, LZMA_CONCATENATED) != LZMA_OK) throw std::bad_alloc();
    }
    ~XzSource() override { lzma_end(&stream_); }

    std::size_t read(char *to, std::size_t cap) override {
        while (!ended_) {
            const std::string_view in = raw_.peek(1);
            stream_.next_in = reinterpret_cast<const std::uint8_t *>(in.data());
            stream_.avail_in = in.size();
            stream_.next_out = reinterpret_cast<std::uint8_t *>(to);
            stream_.avail_out = cap;
            const lzma_ret result = lzma_code(&stream_, in.empty() ? LZMA_FINISH : LZMA_RUN);
            raw_.consume(in.size() - stream_.avail_in);
            const std::size_t count = cap - stream_.avail_out;
            if (result == LZMA_STREAM_END) ended_ = true;
            if (result != LZMA_OK && result != LZMA_STREAM_END && !failed_) failed_ = result;
            if (count) return count;
            if (failed_) refuse(failed_);
        }
        return 0;
    }

private:
    [[noreturn]] static void refuse(lzma_ret result) {
        switch (result) {
        case LZMA_MEM_ERROR:
            throw std::bad_alloc();
        case LZMA_BUF_ERROR:
            truncated("xz");
        case LZMA_MEMLIMIT_ERROR:
            throw DamagedInput{"expected xz data that need at most 256 MiB to decompress, found more"};
        case LZMA_OPTIONS_ERROR:
            damaged("xz", "unknown options");
        default:
            damaged("xz", "in a block, or other bytes after the last stream");
        }
    }

    RawBytes raw_;
    lzma_stream stream_ = LZMA_STREAM_INIT;
    lzma_ret failed_ = LZMA_OK;
    bool ended_ = false;
};

class ZstdSource final : public ByteSource {
public:
    explicit ZstdSource(RawBytes raw) : raw_(std::move(raw)), stream_(ZSTD_createDStream()) {
        if (!stream_) throw std::bad_alloc();
    }

    std::size_t read(char *to, std::size_t cap) override {
        for (;;) {
            const std::string_view bytes = raw_.peek(1);
            if (bytes.empty() && frame_done_) return 0;
            ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
            ZSTD_outBuffer out{to, cap, 0};
            const std::size_t result = failed_ ? failed_ : ZSTD_decompressStream(stream_.get(), &out, &in);
            raw_.consume(in.pos);
            if (ZSTD_isError(result)) failed_ = result;
            frame_done_ = result == 0;
            if (out.pos) return out.pos;
            if (failed_) damaged("zstd", ZSTD_getErrorName(failed_));
            if (bytes.empty() && !frame_done_) truncated("zstd");
        }
    }

private:
    struct Free {
        void operator()(ZSTD_DStream *stream) const { ZSTD_freeDStream(stream); }
    };
    RawBytes raw_;
    std::unique_ptr<ZSTD_DStream, Free> stream_;
    std::size_t failed_ = 0;
    bool frame_done_ = false;
};

bool is_zstd(std::string_view bytes) {
    using namespace std::string_view_literals;
    if (bytes.starts_with("\x28\xb5\x2f\xfd"sv)) return true;
    // A skippable frame (magic 0x184D2A50 to 0x184D2A5F) may come first.
    return bytes.size() >= 4 && (bytes[0] & '\xf0') == '\x50' && bytes.substr(1, 3) == "\x2a\x4d\x18"sv;
}

} // namespace

std::unique_ptr<ByteSource> decompressed(std::unique_ptr<ByteSource> source) {
    using namespace std::string_view_literals;
    constexpr std::size_t longest_magic = 6;
    RawBytes raw(std::move(source));
    const std::string_view magic = raw.peek(longest_magic);
    std::unique_ptr<ByteSource> decoder;
    if (magic.starts_with("\x1f\x8b"sv))
        decoder = std::make_unique<GzipSource>(std::move(raw));
    else if (magic.starts_with("\xfd"
                               "7zXZ\0"sv))
        decoder = std::make_unique<XzSource>(std::move(raw));
    else if (is_zstd(magic))
        decoder = std::make_unique<ZstdSource>(std::move(raw));
    if (!decoder) return std::make_unique<BufferedSource>(std::move(raw));
    // Always unpacked in pieces of one size: how many bytes come out before damage is found depends on it.
    return std::make_unique<BufferedSource>(RawBytes(std::move(decoder)));
}

} // namespace dslide
