// SPDX-License-Identifier: Apache-2.0
#include "cli/train_setup.hpp"

#include "cli/config_file.hpp"
#include "cli/errors.hpp"
#include "cli/flags.hpp"
#include "cli/format.hpp"
#include "cli/memory.hpp"
#include "cli/resume.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace dslide::cli {

namespace {

namespace fs = std::filesystem;

void need_writable_dir(const std::string &dir) {
    std::error_code error;
    fs::create_directories(dir, error);
    if (error) throw Failure("cannot write under '" + dir + "': " + error.message());
    if (!fs::is_directory(dir, error)) throw Failure("cannot write under '" + dir + "': not a directory");
    if (access(dir.c_str(), W_OK | X_OK) != 0)
        throw Failure("cannot write under '" + dir + "': " + std::strerror(errno));
}

/// The data's width and number of labels are those of the model that is trained.
void need_known_shape(const TrainFlags &flags, const dslide_dataset_info &info) {
    if (info.n_features < 1) throw Failure("'" + flags.train + "': width of the rows unknown; give --n-features");
    if (info.n_labels < 1) throw Failure("'" + flags.train + "': number of labels unknown; give --n-labels");
}

void open_training_data(const TrainFlags &flags, TrainingSetup &setup) {
    dslide_dataset_options options = dataset_options(flags.data);
    options.shuffle = flags.data.no_shuffle ? 0 : 1;
    options.seed = flags.trainer.seed;
    if (setup.model) { // resumed: the data must fit the model, and comes in the order of the first run
        const dslide_model_info model = model_info(setup.model);
        options.n_features = model.n_inputs;
        options.n_labels = model.n_outputs;
        options.index_base = model.index_base;
        options.seed = trainer_options(setup.trainer).seed;
    }
    setup.train = open_dataset(setup.cluster, flags.train, options);
    need_known_shape(flags, dataset_info(setup.train));
}

void open_test_data(const TrainFlags &flags, TrainingSetup &setup) {
    if (flags.test.empty()) return;
    dslide_dataset_options options = dataset_options(flags.data);
    options.mode = DSLIDE_DATASET_RESIDENT;
    // Labels stay as they are: one the model cannot predict is a miss, not an error.
    options.n_labels = 0;
    if (setup.model) options.index_base = model_info(setup.model).index_base;
    options.n_features = flags.data.drop_wide ? dataset_info(setup.train).n_features : 0;
    setup.test = open_dataset(setup.cluster, flags.test, options);
    const std::int64_t width = dataset_info(setup.test).n_features, inputs = dataset_info(setup.train).n_features;
    if (width > inputs)
        throw Failure("'" + flags.test + "' has " + with_commas(width) + " features, the training data " +
                      with_commas(inputs) + "; --n-features widens the model, --drop-wide leaves them out");
}

dslide_model_options model_options(const TrainFlags &flags, const TrainingSetup &setup) {
    const dslide_dataset_info data = dataset_info(setup.train);
    dslide_model_options options = flags.model;
    options.n_inputs = data.n_features;
    options.n_outputs = data.n_labels;
    options.index_base = flags.data.index_base;
    return options;
}

void estimate_memory(const TrainFlags &flags, TrainingSetup &setup) {
    dslide_model_options shape = model_options(flags, setup);
    dslide_trainer_options training = flags.trainer;
    if (setup.model) {
        const dslide_model_info info = model_info(setup.model);
        shape.n_hidden = info.n_hidden;
        std::copy(info.hidden, info.hidden + info.n_hidden, shape.hidden);
        training = trainer_options(setup.trainer);
    }
    std::int64_t data_bytes = dataset_info(setup.train).resident_bytes;
    if (setup.test) data_bytes += dataset_info(setup.test).resident_bytes;
    setup.memory = {};
    setup.memory.struct_size = sizeof setup.memory;
    check(dslide_model_estimate_memory(&shape, &training, flags.batch, data_bytes, &setup.memory));
    setup.available_bytes = available_memory();
}

void need_memory(const TrainFlags &flags, const TrainingSetup &setup) {
    const std::int64_t still_needed = setup.memory.total_bytes - setup.memory.data_bytes; // the data is read already
    if (flags.force || setup.available_bytes < 0 || still_needed <= setup.available_bytes) return;
    throw Failure("training needs " + bytes_text(still_needed) + " of memory beside the data, " +
                  bytes_text(setup.available_bytes) + " are available (" + breakdown(setup.memory) +
                  "); --force tries all the same");
}

/// Names that a checkpoint brings need no file, though run.conf names one.
bool wants_names(const TrainFlags &flags, const std::string &file, const char *flag) {
    return !file.empty() && (flags.resume.empty() || flags.given.count(flag) > 0);
}

void read_names(const TrainFlags &flags, const Model &model) {
    if (wants_names(flags, flags.names_labels, "names-labels"))
        check(dslide_model_read_names(model.get(), DSLIDE_NAMES_LABELS, flags.names_labels.c_str()));
    if (wants_names(flags, flags.names_features, "names-features"))
        check(dslide_model_read_names(model.get(), DSLIDE_NAMES_FEATURES, flags.names_features.c_str()));
}

void make_model(const TrainFlags &flags, TrainingSetup &setup) {
    const dslide_model_options options = model_options(flags, setup);
    dslide_model *model = nullptr;
    check(dslide_model_create(setup.cluster.get(), &options, &model));
    setup.model.reset(model);
    read_names(flags, setup.model);
    dslide_trainer *trainer = nullptr;
    check(dslide_trainer_create(model, &flags.trainer, &trainer));
    setup.trainer.reset(trainer);
}

std::string run_config(const TrainFlags &flags) {
    static const char *const paths[] = {"train", "test", "names-labels", "names-features"};
    std::string text = "# Flags of the run that saved here: dslide train --config run.conf repeats it.\n";
    for (const auto &[key, value] : flags.repeatable) {
        const bool is_path = std::find(std::begin(paths), std::end(paths), key) != std::end(paths) && value != "-";
        text += config_line(key, is_path ? fs::absolute(value).string() : value);
    }
    return text;
}

} // namespace

void check_before_work(const TrainFlags &flags) {
    if (flags.train.empty()) throw UsageError("--train FILE is missing");
    if (flags.test == "-" && flags.train == "-") throw UsageError("--train and --test cannot both be standard input");
    if (flags.early_stop > 0 && flags.test.empty()) throw UsageError("--early-stop needs --test FILE");
    if (flags.given.count("save-every") > 0 && flags.save.empty()) throw UsageError("--save-every needs --save DIR");
    if (flags.trainer.schedule == DSLIDE_SCHEDULE_STEP && flags.trainer.step_samples == 0)
        throw UsageError("--schedule step needs --step-samples N");
    const bool falls =
        flags.trainer.schedule == DSLIDE_SCHEDULE_LINEAR || flags.trainer.schedule == DSLIDE_SCHEDULE_COSINE;
    if (falls && flags.data.stream && flags.trainer.total_samples == 0)
        throw UsageError("--schedule linear and cosine with --stream need --total-samples N");
    if (!flags.save.empty()) run_config(flags); // that it can be written
    need_readable_by(flags.ranks, flags.train);
    if (flags.data.stream && flags.epochs > 1 && can_be_read_once(flags.train))
        throw UsageError("--stream from a pipe allows one epoch, --epochs is " + std::to_string(flags.epochs));
    if (!flags.test.empty()) need_readable_by(flags.ranks, flags.test);
    if (wants_names(flags, flags.names_labels, "names-labels")) need_readable_by(flags.ranks, flags.names_labels);
    if (wants_names(flags, flags.names_features, "names-features")) need_readable_by(flags.ranks, flags.names_features);
    if (!flags.resume.empty()) need_model_dir(flags.resume);
    if (!flags.save.empty() && !flags.dry_run) need_writable_dir(flags.save);
}

TrainingSetup set_up_training(const TrainFlags &flags, const Cluster &cluster) {
    TrainingSetup setup{cluster, {}, {}, {}, {}, {}, -1};
    if (!flags.resume.empty()) {
        load_for_resume(flags, setup);
        read_names(flags, setup.model);
    }
    open_training_data(flags, setup);
    open_test_data(flags, setup);
    estimate_memory(flags, setup);
    if (!setup.model) {
        need_memory(flags, setup);
        make_model(flags, setup);
    }
    return setup;
}

void save_run_config(const TrainFlags &flags) {
    const std::string path = flags.save + "/run.conf", draft = path + ".tmp";
    std::remove(draft.c_str()); // were it a link, it would be written through
    std::ofstream file(draft, std::ios::trunc);
    file << run_config(flags);
    file.close();
    if (file && std::rename(draft.c_str(), path.c_str()) == 0) return;
    const int error = errno;
    std::remove(draft.c_str());
    throw Failure("cannot write '" + path + "': " + std::strerror(error));
}

dslide_trainer_info trainer_info(const Trainer &trainer) {
    dslide_trainer_info info = {};
    info.struct_size = sizeof info;
    check(dslide_trainer_get_info(trainer.get(), &info));
    return info;
}

dslide_trainer_options trainer_options(const Trainer &trainer) {
    dslide_trainer_options options = {};
    options.struct_size = sizeof options;
    check(dslide_trainer_get_options(trainer.get(), &options));
    return options;
}

} // namespace dslide::cli
