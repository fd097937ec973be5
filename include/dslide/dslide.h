/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file dslide.h
 * @brief The umbrella header: everything a host of libdslide includes.
 *
 * libdslide trains networks whose last layer has 10^5 to 10^7 outputs on CPUs. For each input, hash tables over the
 * output neurons' weights choose the few neurons that take part (SLIDE, arXiv 1903.03129; D-SLIDE, arXiv 2201.12667).
 *
 * A host works with five kinds of handle:
 *
 *     dslide_cluster    who computes: threads of this process (cluster.h)
 *     dslide_dataset    rows of features and labels, from text, memory or a pipe (dataset.h)
 *     dslide_model      layers and their weights; predicts (model.h)
 *     dslide_trainer    optimizer state, hash tables, the step loop, checkpoints (trainer.h)
 *     dslide_hashtable  locality-sensitive hash tables over any vectors, useful alone (hashtable.h)
 *
 * The shortest complete program:
 *
 *     dslide_cluster *cluster; dslide_dataset *data; dslide_model *model; dslide_trainer *trainer;
 *     dslide_cluster_open_self(NULL, &cluster);
 *     dslide_dataset_open(cluster, "train.txt", NULL, &data);
 *     dslide_dataset_info info = {.struct_size = sizeof info};
 *     dslide_dataset_get_info(data, &info);
 *     dslide_model_options shape; dslide_model_options_init(&shape, sizeof shape);
 *     shape.n_inputs = info.n_features; shape.n_outputs = info.n_labels;
 *     dslide_model_create(cluster, &shape, &model);
 *     dslide_trainer_create(model, NULL, &trainer);
 *     dslide_trainer_run(trainer, data, NULL, NULL);
 *     dslide_trainer_save(trainer, "checkpoint");
 *
 * Every function returns a ::dslide_status unless it cannot fail; dslide_last_error() tells why. Rules that hold for
 * all of them are in base.h.
 */
#ifndef DSLIDE_DSLIDE_H
#define DSLIDE_DSLIDE_H

#include <dslide/base.h>
#include <dslide/cluster.h>
#include <dslide/dataset.h>
#include <dslide/hashtable.h>
#include <dslide/model.h>
#include <dslide/trainer.h>
#include <dslide/types.h>

#endif
