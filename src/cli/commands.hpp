// SPDX-License-Identifier: Apache-2.0
// The subcommands. Each returns the exit code; UsageError and Failure leave them as exceptions.
#pragma once

#include "cli/options.hpp"

namespace dslide::cli {

int run_train(TrainFlags &flags);
int run_eval(const EvalFlags &flags);
int run_predict(const PredictFlags &flags);
int run_info(const InfoFlags &flags);
int run_verify(const VerifyFlags &flags);
int run_export(const ExportFlags &flags);
int run_bench(BenchFlags &flags);

} // namespace dslide::cli
