// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/format.hpp"
#include "cli/host.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace dslide::cli {

namespace {

/// Writes throw Failure, and a file that was not closed is removed: a part does not pass for a complete one.
class OutputFile {
public:
    explicit OutputFile(const std::string &path) : path_(path), file_(path, std::ios::binary | std::ios::trunc) {
        if (!file_) throw_failure();
    }
    ~OutputFile() {
        std::error_code ignored;
        if (!is_complete_ && std::filesystem::is_regular_file(path_, ignored)) std::filesystem::remove(path_, ignored);
    }
    OutputFile(const OutputFile &) = delete;
    OutputFile &operator=(const OutputFile &) = delete;

    void write(const void *data, std::size_t bytes) {
        if (!file_.write(static_cast<const char *>(data), static_cast<std::streamsize>(bytes))) throw_failure();
    }
    void close() {
        file_.close();
        if (!file_) throw_failure();
        is_complete_ = true;
    }

private:
    [[noreturn]] void throw_failure() const { throw Failure("cannot write '" + path_ + "': " + std::strerror(errno)); }

    std::string path_;
    std::ofstream file_;
    bool is_complete_ = false;
};

/// The header of a NumPy file, version 1.0: magic, length, and a Python dictionary padded to 64 bytes.
std::string npy_header(std::int64_t rows, std::int64_t cols) {
    constexpr std::size_t alignment = 64, prefix = 10;
    const char *type = std::endian::native == std::endian::little ? "<f4" : ">f4";
    std::string dictionary = "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (" +
                             std::to_string(rows) + ", " + std::to_string(cols) + "), }";
    const std::size_t unpadded = prefix + dictionary.size() + 1;
    dictionary.append((alignment - unpadded % alignment) % alignment, ' ').append("\n");
    std::string header("\x93NUMPY\x01\x00", 8);
    header.push_back(static_cast<char>(dictionary.size() & 0xff));
    header.push_back(static_cast<char>(dictionary.size() >> 8));
    return header + dictionary;
}

/// Calls take(first_row, row_count, values) for blocks of rows, so that a large tensor is never whole in memory twice.
template <class Take>
void for_each_block(const Model &model, const std::string &tensor, std::int64_t rows, std::int64_t cols, Take take) {
    constexpr std::int64_t values_per_block = 1 << 20;
    const std::int64_t rows_per_block = std::max<std::int64_t>(values_per_block / std::max<std::int64_t>(cols, 1), 1);
    std::vector<float> values;
    for (std::int64_t row = 0; row < rows; row += rows_per_block) {
        const std::int64_t count = std::min(rows_per_block, rows - row);
        values.resize(static_cast<std::size_t>(count * cols));
        check(dslide_model_get_rows(model.get(), tensor.c_str(), row, count, values.data()));
        take(row, count, values);
    }
}

void write_npy(const Model &model, const std::string &tensor, std::int64_t rows, std::int64_t cols, OutputFile &file) {
    const std::string header = npy_header(rows, cols);
    file.write(header.data(), header.size());
    for_each_block(model, tensor, rows, cols, [&](std::int64_t, std::int64_t, const std::vector<float> &values) {
        file.write(values.data(), values.size() * sizeof(float));
    });
}

/// What a row of the tensor stands for: a feature, a class, or only a number.
std::string row_name(const Model &model, const std::string &tensor, std::int64_t row) {
    if (tensor == "input.weight") return name_of(model, DSLIDE_NAMES_FEATURES, row);
    if (tensor == "output.weight") return name_of(model, DSLIDE_NAMES_LABELS, row);
    return std::to_string(row);
}

void write_tsv(const Model &model, const std::string &tensor, std::int64_t rows, std::int64_t cols, OutputFile &file) {
    constexpr int exact_digits = 9; // enough to read back the same float
    for_each_block(
        model, tensor, rows, cols, [&](std::int64_t first, std::int64_t count, const std::vector<float> &values) {
            for (std::int64_t row = 0; row < count; ++row) {
                std::string line = row_name(model, tensor, first + row);
                for (std::int64_t col = 0; col < cols; ++col)
                    line += "\t" + significant(values[static_cast<std::size_t>(row * cols + col)], exact_digits);
                line += "\n";
                file.write(line.data(), line.size());
            }
        });
}

void export_tensor(const ExportFlags &flags, const Model &model) {
    std::int64_t rows = 0, cols = 0;
    check(dslide_model_tensor_shape(model.get(), flags.tensor.c_str(), &rows, &cols));
    OutputFile file(flags.out);
    if (flags.as == export_npy)
        write_npy(model, flags.tensor, rows, cols, file);
    else
        write_tsv(model, flags.tensor, rows, cols, file);
    file.close();
}

} // namespace

int run_export(const ExportFlags &flags) {
    if (flags.model.empty()) throw UsageError("--model DIR is missing");
    if (flags.tensor.empty() && flags.slim.empty())
        throw UsageError("give --tensor NAME with --out FILE, or --slim OUTDIR");
    if (flags.tensor.empty() != flags.out.empty()) throw UsageError("--tensor NAME and --out FILE belong together");
    need_model_dir(flags.model);
    const Model model = load_model(open_cluster(0), flags.model);
    if (!flags.tensor.empty()) export_tensor(flags, model);
    if (!flags.slim.empty()) check(dslide_model_save(model.get(), flags.slim.c_str()));
    return exit_ok;
}

} // namespace dslide::cli
