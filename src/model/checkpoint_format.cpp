// SPDX-License-Identifier: Apache-2.0
// The one file that knows the JSON library.
#include "model/checkpoint_format.hpp"

#include "core/error.hpp"
#include "model/meta.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <xxhash.h>

namespace dslide {
namespace {

using Json = nlohmann::json;

constexpr std::string_view manifest_prefix = "{\"format\":\"dslide-checkpoint\",\"version\":\"";
constexpr std::string_view tail_open = ",\n\"xxh3\":\"";
constexpr std::string_view tail_close = "\"}\n";
constexpr std::size_t hex_digits = 16;
constexpr std::int64_t largest_size = std::int64_t{1} << 62;

template <class... Parts>
[[noreturn]] void damaged(const std::string &path, const Parts &...parts) {
    fail(DSLIDE_E_FORMAT, path, ": ", parts...);
}

void append_hex(std::string &text, std::uint64_t value) {
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(value >> shift) & 15];
}

bool parse_hex(std::string_view text, std::uint64_t &value) {
    value = 0;
    for (const char c : text) {
        const bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
        if (!digit && !letter) return false;
        value = value << 4 | static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
    }
    return text.size() == hex_digits;
}

/// Refuses what the library accepts but we do not: duplicate keys, deep nesting, very many values.
class JsonLimits {
public:
    explicit JsonLimits(const std::string &path) : path_(path) {}
    bool operator()(int depth, Json::parse_event_t event, const Json &parsed) {
        using Event = Json::parse_event_t;
        if (event == Event::object_end) keys_.pop_back();
        if (event == Event::object_start) keys_.emplace_back();
        if (event == Event::object_start || event == Event::array_start || event == Event::value) count(depth);
        if (event == Event::key && !keys_.back().insert(parsed.get_ref<const std::string &>()).second)
            damaged(path_, "the key \"", printable(parsed.get_ref<const std::string &>()), "\" comes twice");
        return true;
    }
    /// An unchecked name for a message: short, one line.
    static std::string printable(std::string text) {
        if (text.size() > max_name_length) text.resize(max_name_length);
        for (char &c : text)
            if (c < ' ' || c > '~') c = '?';
        return text;
    }

private:
    void count(int depth) {
        if (depth > static_cast<int>(max_json_depth)) damaged(path_, "nested deeper than ", max_json_depth);
        if (++values_ > max_json_values) damaged(path_, "more than ", max_json_values, " values");
    }
    const std::string &path_;
    std::vector<std::set<std::string>> keys_;
    std::size_t values_ = 0;
};

Json parse_json(std::string_view text, const std::string &path) {
    JsonLimits limits(path);
    Json root;
    try {
        root = Json::parse(text.begin(), text.end(), std::ref(limits));
    } catch (const Json::exception &e) {
        damaged(path, "not valid JSON: ", JsonLimits::printable(e.what()));
    }
    if (!root.is_object()) damaged(path, "a JSON object was expected");
    return root;
}

/// A JSON value with the words that say where it stands.
struct Place {
    const Json &value;
    const std::string &path;
    std::string where;

    Place member(const char *key) const {
        if (!value.is_object()) damaged(path, where, " is not an object");
        const auto found = value.find(key);
        if (found == value.end()) damaged(path, where, " has no \"", key, "\"");
        return {*found, path, where + "." + key};
    }
    const Json &array() const {
        if (!value.is_array()) damaged(path, where, " is not an array");
        return value;
    }
    const Json &array_of(std::size_t size) const {
        if (array().size() != size) damaged(path, where, " has ", value.size(), " values, expected ", size);
        return value;
    }
    Place at(std::size_t i) const { return {value[i], path, where + "[" + std::to_string(i) + "]"}; }
    const std::string &text() const {
        if (!value.is_string()) damaged(path, where, " is not a string");
        return value.get_ref<const std::string &>();
    }
    std::string name() const {
        if (!is_valid_name(text()))
            damaged(path, where, " \"", JsonLimits::printable(text()), "\" is not an allowed name");
        return text();
    }
    std::int64_t integer(std::int64_t least, std::int64_t most) const {
        if (!value.is_number_integer()) damaged(path, where, " is not an integer");
        const bool too_big = value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t(most);
        if (too_big || value.get<std::int64_t>() < least)
            damaged(path, where, " is ", value.dump(), ", expected ", least, " .. ", most);
        return value.get<std::int64_t>();
    }
};

constexpr std::pair<const char *, DType> dtype_names[] = {
    {"F32", DType::f32}, {"I64", DType::i64}, {"I32", DType::i32}, {"U8", DType::u8}};

const char *name_of(DType type) {
    return std::find_if(std::begin(dtype_names), std::end(dtype_names), [&](auto &x) { return x.second == type; })
        ->first;
}

TensorShape parse_shape(const Place &tensor) {
    TensorShape shape;
    const Place dtype = tensor.member("dtype"), dims = tensor.member("shape");
    const auto known =
        std::find_if(std::begin(dtype_names), std::end(dtype_names), [&](auto &x) { return dtype.text() == x.first; });
    if (known == std::end(dtype_names))
        damaged(tensor.path, dtype.where, " \"", JsonLimits::printable(dtype.text()), "\" is not known");
    shape.type = known->second;
    dims.array_of(2);
    shape.rows = dims.at(0).integer(1, largest_size);
    shape.cols = dims.at(1).integer(1, largest_size);
    if (byte_count(shape) < 0) damaged(tensor.path, dims.where, ": ", shape.rows, " x ", shape.cols, " is too large");
    return shape;
}

std::vector<std::uint64_t> parse_blocks(const Place &hex, std::int64_t size, std::int64_t block_bytes) {
    const std::string &text = hex.text();
    const std::int64_t count = size / block_bytes + (size % block_bytes != 0);
    if (text.size() % hex_digits != 0 || static_cast<std::int64_t>(text.size() / hex_digits) != count)
        damaged(hex.path, hex.where, " has ", text.size(), " digits, expected ", hex_digits, " for each of ", count,
                " blocks");
    std::vector<std::uint64_t> blocks(text.size() / hex_digits);
    for (std::size_t i = 0; i < blocks.size(); ++i)
        if (!parse_hex(std::string_view(text).substr(i * hex_digits, hex_digits), blocks[i]))
            damaged(hex.path, hex.where, ": checksum ", i, " is not hexadecimal");
    return blocks;
}

std::vector<FileRecord> parse_files(const Place &list, std::int64_t block_bytes, std::set<std::string> &seen) {
    std::vector<FileRecord> files(list.array().size());
    for (std::size_t i = 0; i < files.size(); ++i) {
        const Place place = list.at(i);
        files[i].name = place.member("name").name();
        if (!seen.insert(files[i].name).second) damaged(list.path, "the file ", files[i].name, " is listed twice");
        files[i].size = place.member("size").integer(0, largest_size);
        files[i].blocks = parse_blocks(place.member("xxh3"), files[i].size, block_bytes);
    }
    return files;
}

/// The parts of one tensor: stripes of columns from the left, each with ascending rows, without holes or overlaps; each
/// shard named once.
void parse_parts(const Place &list, TensorRecord &tensor, const std::set<std::string> &shards) {
    std::set<std::string> seen;
    std::int64_t next = 0;                         // row of the stripe under way
    std::int64_t stripe_begin = 0, stripe_end = 0; // its columns; none yet
    tensor.parts.resize(list.array().size());
    for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
        PartRecord &part = tensor.parts[i];
        const Place place = list.at(i), rows = place.member("rows");
        part.shard = place.member("shard").name();
        if (!shards.count(part.shard)) damaged(list.path, tensor.name, ": ", part.shard, " is not one of the shards");
        if (!seen.insert(part.shard).second) damaged(list.path, tensor.name, " is twice in ", part.shard);
        rows.array_of(2);
        part.row_begin = rows.at(0).integer(0, tensor.shape.rows - 1);
        part.row_end = rows.at(1).integer(1, tensor.shape.rows);
        part.col_end = tensor.shape.cols;
        if (place.value.contains("cols")) {
            const Place cols = place.member("cols");
            cols.array_of(2);
            part.col_begin = cols.at(0).integer(0, tensor.shape.cols - 1);
            part.col_end = cols.at(1).integer(1, tensor.shape.cols);
            if (part.col_end <= part.col_begin) damaged(list.path, cols.where, " is empty");
        }
        const bool same_stripe = part.col_begin == stripe_begin && part.col_end == stripe_end;
        if (!same_stripe) {
            if (stripe_end > 0 && next != tensor.shape.rows)
                damaged(list.path, tensor.name, ": rows ", next, " .. ", tensor.shape.rows - 1, " are missing");
            if (part.col_begin != stripe_end)
                damaged(list.path, tensor.name, ": columns from ", part.col_begin, " on, expected from ", stripe_end);
            stripe_begin = part.col_begin;
            stripe_end = part.col_end;
            next = 0;
        }
        if (part.row_begin < next) damaged(list.path, tensor.name, ": rows from ", part.row_begin, " are given twice");
        if (part.row_begin > next)
            damaged(list.path, tensor.name, ": rows ", next, " .. ", part.row_begin - 1, " are missing");
        if (part.row_end <= part.row_begin) damaged(list.path, rows.where, " is empty");
        next = part.row_end;
    }
    if (next != tensor.shape.rows)
        damaged(list.path, tensor.name, ": rows ", next, " .. ", tensor.shape.rows - 1, " are missing");
    if (stripe_end != tensor.shape.cols)
        damaged(list.path, tensor.name, ": columns ", stripe_end, " .. ", tensor.shape.cols - 1, " are missing");
}

std::vector<TensorRecord> parse_tensors(const Place &list, const std::vector<FileRecord> &shards) {
    std::set<std::string> shard_names, seen;
    for (const FileRecord &shard : shards) shard_names.insert(shard.name);
    std::vector<TensorRecord> tensors(list.array().size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Place place = list.at(i);
        tensors[i].name = place.member("name").name();
        if (!seen.insert(tensors[i].name).second)
            damaged(list.path, "the tensor ", tensors[i].name, " is listed twice");
        tensors[i].shape = parse_shape(place);
        parse_parts(place.member("parts"), tensors[i], shard_names);
    }
    return tensors;
}

struct Version {
    std::int32_t major = -1, minor = -1;
};

/// "MAJOR.MINOR" behind the prefix; major is -1 where there is none.
Version parse_version(std::string_view text) {
    const char *first = text.data() + manifest_prefix.size(), *end = text.data() + text.size();
    Version version;
    const auto major = std::from_chars(first, end, version.major);
    if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return {};
    const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
    if (minor.ec != std::errc() || minor.ptr == end || *minor.ptr != '"' || version.minor < 0) return {};
    return version;
}

/// Checks the manifest's own checksum, which stands in its last bytes.
void check_tail(std::string_view text, const Version &version, const std::string &path) {
    const std::size_t tail_size = tail_open.size() + hex_digits + tail_close.size();
    const std::size_t body = text.size() < tail_size ? 0 : text.size() - tail_size;
    std::uint64_t expected = 0;
    const bool has_tail = body > 0 && text.substr(body, tail_open.size()) == tail_open &&
                          text.substr(text.size() - tail_close.size()) == tail_close &&
                          parse_hex(text.substr(body + tail_open.size(), hex_digits), expected);
    const bool intact = has_tail && checksum(text.data(), body) == expected;
    // A newer version may end in another way, so a missing checksum does not make it damaged; a wrong one does.
    if (version.major > format_major && (intact || !has_tail))
        fail(DSLIDE_E_UNSUPPORTED, path, ": checkpoint format version ", version.major, ".", version.minor,
             " is newer than this library, which reads ", format_major, ".x");
    if (!has_tail) damaged(path, "truncated or damaged: it does not end with its checksum");
    if (!intact) damaged(path, "checksum mismatch: the manifest was changed or damaged");
    if (version.major < 1) damaged(path, "no valid format version");
}

Version check_envelope(std::string_view text, const std::string &path) {
    if (text.size() < manifest_prefix.size() && manifest_prefix.substr(0, text.size()) == text)
        damaged(path, "truncated after ", text.size(), " bytes");
    if (!begins_as_manifest(text)) damaged(path, "not a checkpoint manifest");
    const Version version = parse_version(text);
    check_tail(text, version, path);
    return version;
}

std::string print_files(const std::vector<FileRecord> &files) {
    std::string text = "[";
    for (const FileRecord &file : files) {
        text += text.size() > 1 ? ",\n" : "\n";
        text += "{\"name\":\"" + file.name + "\",\"size\":" + std::to_string(file.size) + ",\"xxh3\":\"";
        for (const std::uint64_t block : file.blocks) append_hex(text, block);
        text += "\"}";
    }
    return text + "]";
}

std::string print_shape(const TensorShape &shape) {
    return std::string("\"dtype\":\"") + name_of(shape.type) + "\",\"shape\":[" + std::to_string(shape.rows) + "," +
           std::to_string(shape.cols) + "]";
}

std::string print_tensor(const TensorRecord &tensor) {
    std::string text = "{\"name\":\"" + tensor.name + "\"," + print_shape(tensor.shape) + ",\"parts\":[";
    for (const PartRecord &part : tensor.parts) {
        if (&part != &tensor.parts.front()) text += ",";
        text += "{\"shard\":\"" + part.shard + "\",\"rows\":[" + std::to_string(part.row_begin) + "," +
                std::to_string(part.row_end) + "]";
        if (part.col_begin != 0 || part.col_end != tensor.shape.cols)
            text += ",\"cols\":[" + std::to_string(part.col_begin) + "," + std::to_string(part.col_end) + "]";
        text += "}";
    }
    return text + "]}";
}

} // namespace

std::size_t size_of(DType type) {
    switch (type) {
    case DType::i64:
        return 8;
    case DType::u8:
        return 1;
    default:
        return 4;
    }
}

std::int64_t byte_count(const TensorShape &shape) {
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(shape.rows, shape.cols, &bytes) ||
        __builtin_mul_overflow(bytes, static_cast<std::int64_t>(size_of(shape.type)), &bytes) || bytes > largest_size)
        return -1;
    return bytes;
}

bool is_valid_name(std::string_view name) {
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
               c == '-';
    };
    return !name.empty() && name.size() <= max_name_length && name[0] != '.' && name != "__metadata__" &&
           name != manifest_name && std::all_of(name.begin(), name.end(), allowed);
}

std::uint64_t checksum(const void *data, std::size_t size) { return XXH3_64bits(data, size); }

bool begins_as_manifest(std::string_view text) { return text.substr(0, manifest_prefix.size()) == manifest_prefix; }

std::string print_manifest(const Manifest &manifest) {
    std::string text(manifest_prefix);
    text += std::to_string(manifest.major) + "." + std::to_string(manifest.minor) +
            "\",\n\"block_bytes\":" + std::to_string(manifest.block_bytes) +
            ",\n\"shards\":" + print_files(manifest.shards) + ",\n\"files\":" + print_files(manifest.files) +
            ",\n\"tensors\":[";
    for (const TensorRecord &tensor : manifest.tensors)
        text += (&tensor == &manifest.tensors.front() ? "\n" : ",\n") + print_tensor(tensor);
    text += "],\n\"meta\":" + parse_json(manifest.meta, "meta").dump();
    const std::uint64_t sum = checksum(text.data(), text.size());
    text += tail_open;
    append_hex(text, sum);
    text += tail_close;
    return text;
}

Manifest parse_manifest(std::string_view text, const std::string &path) {
    const Version version = check_envelope(text, path);
    const Json json = parse_json(text, path);
    const Place root{json, path, "manifest"};
    Manifest manifest;
    manifest.major = version.major;
    manifest.minor = version.minor;
    manifest.block_bytes = root.member("block_bytes").integer(min_block_bytes, max_block_bytes);
    std::set<std::string> names;
    manifest.shards = parse_files(root.member("shards"), manifest.block_bytes, names);
    manifest.files = parse_files(root.member("files"), manifest.block_bytes, names);
    manifest.tensors = parse_tensors(root.member("tensors"), manifest.shards);
    const Place meta = root.member("meta");
    if (!meta.value.is_object()) damaged(path, meta.where, " is not an object");
    manifest.meta = meta.value.dump();
    return manifest;
}

std::string range_text(const PartRecord &part, const TensorShape &whole) {
    const auto range = [](std::int64_t begin, std::int64_t end, std::int64_t all) {
        return std::to_string(begin) + ":" + std::to_string(end) + "/" + std::to_string(all);
    };
    std::string text = range(part.row_begin, part.row_end, whole.rows);
    if (part.col_begin != 0 || part.col_end != whole.cols)
        text += "," + range(part.col_begin, part.col_end, whole.cols);
    return text;
}

std::string print_shard_header(const std::vector<ShardEntry> &entries) {
    std::string ranges, tensors;
    for (const ShardEntry &entry : entries) {
        if (!ranges.empty()) ranges += ",";
        ranges += "\"" + entry.name + "\":\"" + entry.range + "\"";
        tensors += ",\"" + entry.name + "\":{" + print_shape(entry.shape) + ",\"data_offsets\":[" +
                   std::to_string(entry.begin) + "," + std::to_string(entry.end) + "]}";
    }
    std::string header = "{\"__metadata__\":{" + ranges + "}" + tensors + "}";
    header.append((shard_alignment - (length_field_bytes + header.size()) % shard_alignment) % shard_alignment, ' ');
    std::string length(length_field_bytes, '\0');
    for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>((header.size() >> (8 * i)) & 255);
    return length + header;
}

std::vector<ShardEntry> parse_shard_header(std::string_view text, std::int64_t data_bytes, const std::string &path) {
    if (text.empty() || text[0] != '{') damaged(path, "not a safetensors header");
    const Json json = parse_json(text, path);
    const Place root{json, path, "header"}, ranges = root.member("__metadata__");
    std::vector<ShardEntry> entries;
    for (const auto &[name, value] : json.items()) {
        if (name == "__metadata__") continue;
        ShardEntry entry;
        entry.name = name;
        if (!is_valid_name(name)) damaged(path, "\"", JsonLimits::printable(name), "\" is not an allowed tensor name");
        const Place place{value, path, name}, offsets = place.member("data_offsets");
        entry.shape = parse_shape(place);
        offsets.array_of(2);
        entry.begin = offsets.at(0).integer(0, data_bytes);
        entry.end = offsets.at(1).integer(0, data_bytes);
        if (entry.end - entry.begin != byte_count(entry.shape))
            damaged(path, name, ": data_offsets span ", entry.end - entry.begin, " bytes, the shape needs ",
                    byte_count(entry.shape));
        entry.range = ranges.member(name.c_str()).text();
        entries.push_back(std::move(entry));
    }
    std::sort(entries.begin(), entries.end(), [](auto &a, auto &b) { return a.begin < b.begin; });
    std::int64_t next = 0;
    for (const ShardEntry &entry : entries) {
        if (entry.begin != next)
            damaged(path, entry.name, ": data begins at ", entry.begin,
                    entry.begin < next ? ", inside" : ", with a hole after", " the data before it, which ends at ",
                    next);
        next = entry.end;
    }
    if (next != data_bytes) damaged(path, "the tensors end at byte ", next, ", the data at ", data_bytes);
    return entries;
}

struct Meta::State {
    Json object = Json::object();

    const Json &at(const std::string &key) const {
        const auto found = object.find(key);
        if (found == object.end()) fail(DSLIDE_E_FORMAT, "the checkpoint's meta has no \"", key, "\"");
        return *found;
    }
    template <class T>
    T get(const std::string &key, bool right_type, const char *type) const {
        if (!right_type) fail(DSLIDE_E_FORMAT, "the checkpoint's meta: \"", key, "\" is not ", type);
        return at(key).get<T>();
    }
    static bool is_int64(const Json &value) {
        constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        return value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > most);
    }
};

Meta::Meta() : state_(std::make_unique<State>()) {}
Meta::Meta(const std::string &json) : Meta() { state_->object = parse_json(json, "meta"); }
Meta::~Meta() = default;
Meta::Meta(Meta &&) noexcept = default;
Meta &Meta::operator=(Meta &&) noexcept = default;

void Meta::set_bool(const std::string &key, bool value) { state_->object[key] = value; }
void Meta::set_int(const std::string &key, std::int64_t value) { state_->object[key] = value; }
void Meta::set_uint(const std::string &key, std::uint64_t value) { state_->object[key] = value; }
void Meta::set_number(const std::string &key, double value) {
    if (!std::isfinite(value)) fail(DSLIDE_E_INTERNAL, "meta \"", key, "\" is not finite");
    state_->object[key] = value;
}
void Meta::set_ints(const std::string &key, const std::vector<std::int64_t> &values) { state_->object[key] = values; }

bool Meta::has(const std::string &key) const { return state_->object.contains(key); }
bool Meta::get_bool(const std::string &key) const {
    return state_->get<bool>(key, state_->at(key).is_boolean(), "true or false");
}
std::int64_t Meta::get_int(const std::string &key) const {
    return state_->get<std::int64_t>(key, State::is_int64(state_->at(key)), "a 64-bit integer");
}
std::int64_t Meta::get_count(const std::string &key) const {
    const std::int64_t count = get_int(key);
    if (count < 0 || count > most_count)
        fail(DSLIDE_E_FORMAT, "checkpoint: ", key, " is ", count, ", expected 0 .. ", most_count);
    return count;
}
std::uint64_t Meta::get_uint(const std::string &key) const {
    const Json &value = state_->at(key);
    const bool negative = State::is_int64(value) && value.get<std::int64_t>() < 0;
    return state_->get<std::uint64_t>(key, value.is_number_integer() && !negative, "an integer >= 0");
}
double Meta::get_number(const std::string &key) const {
    return state_->get<double>(key, state_->at(key).is_number(), "a number");
}
std::vector<std::int64_t> Meta::get_ints(const std::string &key) const {
    const Json &value = state_->at(key);
    return state_->get<std::vector<std::int64_t>>(
        key, value.is_array() && std::all_of(value.begin(), value.end(), State::is_int64), "an array of integers");
}

std::string Meta::json() const { return state_->object.dump(); }

} // namespace dslide
