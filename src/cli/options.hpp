// SPDX-License-Identifier: Apache-2.0
// The command line: what each subcommand was asked to do. Values are checked one by one here, against files and models
// later.
#pragma once

#include <dslide/dslide.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace dslide::cli {

/// How text files are read.
struct DataFlags {
    std::int32_t format = DSLIDE_FORMAT_XMC;
    std::int32_t index_base = 0;
    std::int32_t label_base = 0;
    std::int64_t n_features = 0, n_labels = 0;
    bool drop_wide = false, stream = false, no_shuffle = false, normalize = false;
};

enum : std::int32_t { transport_auto = 0, transport_self, transport_threads, transport_mpi };

/// With whom a command computes.
struct RankFlags {
    std::int32_t ranks = 0; ///< 0: one, or as many as mpirun started
    std::int32_t transport = transport_auto;
    std::int32_t payload = DSLIDE_PAYLOAD_FP32;
    float timeout = 60;
};

struct TrainFlags {
    std::string train, test, save, resume, json, names_labels, names_features;
    DataFlags data;
    dslide_model_options model;
    dslide_trainer_options trainer;
    std::int32_t epochs = 5, batch = 256, early_stop = 0, threads = 0;
    std::int64_t save_every = 0, eval_rows = 0;
    RankFlags ranks;
    bool dense = false, dry_run = false, force = false, quiet = false;
    std::set<std::string> given; ///< names of the flags given by the user, on the command line or with --config
    /// Every flag with a value that a repetition of the run needs, as `key = value` lines for run.conf.
    std::vector<std::pair<std::string, std::string>> repeatable;
};

struct EvalFlags {
    std::string model, test, json;
    DataFlags data;
    dslide_eval_options eval;
    RankFlags ranks;
    std::int32_t threads = 0;
    bool index_base_given = false;
};

struct PredictFlags {
    std::string model, input, json;
    DataFlags data;
    std::int32_t top = 5, batch = 256, threads = 0;
    bool names = false, index_base_given = false;
};

struct InfoFlags {
    std::string path, json;
    DataFlags data;
    std::int32_t threads = 0;
};

struct VerifyFlags {
    std::string dir;
};

enum : std::int32_t { export_npy = 0, export_tsv = 1 };

struct ExportFlags {
    std::string model, tensor, out, slim;
    std::int32_t as = export_npy;
};

struct BenchFlags {
    std::string json;
    dslide_model_options model;
    dslide_trainer_options trainer;
    std::int32_t batch = 1024, steps = 10, warm_up = 2, nnz = 75, labels = 5, threads = 0;
    RankFlags ranks;
    std::int64_t active = 0;
    bool dense = false;
    std::set<std::string> given;
};

class CommandLine {
public:
    CommandLine();
    ~CommandLine();

    /// The exit code if nothing is left to do (--help, --version). Throws UsageError and Failure.
    std::optional<int> parse(int argc, char **argv);
    /// The subcommand's name, for error lines; "" before it is known.
    std::string command() const;

    TrainFlags train;
    EvalFlags eval;
    PredictFlags predict;
    InfoFlags info;
    VerifyFlags verify;
    ExportFlags export_;
    BenchFlags bench;

private:
    struct Parser;
    /// Adds what --config and a model's run.conf say to what the command line said.
    void settle(CLI::App &chosen);
    std::unique_ptr<Parser> parser_;
};

} // namespace dslide::cli
