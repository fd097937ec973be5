/* SPDX-License-Identifier: Apache-2.0 */
/* The library leaves its host as it was: signals, locale, floating-point mode, environment, descriptors, output. */
#define _GNU_SOURCE
#include "sample.h"

#include <dirent.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

enum { most_signals = 65, most_environment = 1 << 16 };

typedef struct host {
    struct sigaction actions[most_signals];
    sigset_t blocked;
    char locale[256], directory[512], environment[most_environment];
    int rounding;
    unsigned int control; /* of the SSE unit: rounding, flush to zero, denormals are zero, masks */
    int descriptors;
    mode_t mask;
} host;

static int open_descriptors(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) return -1;
    while (readdir(dir)) ++n;
    closedir(dir);
    return n;
}

static void look_at(host *h) {
    size_t used = 0;
    memset(h, 0, sizeof *h);
    for (int s = 1; s < most_signals; ++s) sigaction(s, NULL, &h->actions[s]); /* refused for some: stays 0 */
    sigprocmask(SIG_SETMASK, NULL, &h->blocked);
    snprintf(h->locale, sizeof h->locale, "%s", setlocale(LC_ALL, NULL));
    assert_non_null(getcwd(h->directory, sizeof h->directory));
    for (char **e = environ; *e && used < sizeof h->environment - 1; ++e)
        used += (size_t)snprintf(h->environment + used, sizeof h->environment - used, "%s\n", *e);
    h->rounding = fegetround();
#if defined(__x86_64__)
    h->control = __builtin_ia32_stmxcsr() & ~0x3fu; /* the six lowest bits tell what has happened */
#endif
    h->descriptors = open_descriptors();
    h->mask = umask(022);
    umask(h->mask);
}

/* Everything a host does with the library, errors included. */
static void use_the_library(void) {
    sample s;
    int64_t labels[sample_rows];
    char dir[] = "/tmp/dslide-host-XXXXXX", command[64], where[64];
    dslide_run_options run;
    dslide_metrics metrics = {.struct_size = sizeof metrics};
    sample_init(&s);
    assert_non_null(mkdtemp(dir));
    snprintf(where, sizeof where, "%s/run", dir);
    dslide_cluster *cluster = sample_cluster(2);
    dslide_dataset *data = sample_dataset(cluster, &s), *none = NULL;
    for (int32_t select = DSLIDE_SELECT_SIMHASH; select <= DSLIDE_SELECT_ALL; ++select) {
        dslide_model *model = sample_model(cluster), *loaded_model = NULL;
        dslide_trainer *trainer = sample_trainer(model, select), *loaded = NULL;
        dslide_run_options_init(&run, sizeof run);
        run.epochs = 2;
        run.batch_size = 16;
        run.save_dir = where;
        run.eval_data = data;
        assert_int_equal(dslide_trainer_run(trainer, data, &run, NULL), DSLIDE_OK);
        assert_int_equal(dslide_model_predict(model, &s.features, 1, labels, NULL), DSLIDE_OK);
        assert_int_equal(dslide_model_evaluate(model, data, NULL, &metrics), DSLIDE_OK);
        assert_int_equal(dslide_trainer_load(cluster, where, &loaded_model, &loaded), DSLIDE_OK);
        assert_int_equal(dslide_trainer_set_learning_rate(loaded, 1e30f), DSLIDE_OK);
        dslide_status status = DSLIDE_OK;
        for (int step = 0; step < 20 && status == DSLIDE_OK; ++step)
            status = dslide_trainer_step(loaded, &s.features, &s.labels, NULL, NULL);
        assert_int_equal(status, DSLIDE_E_DIVERGED);
        dslide_trainer_free(loaded);
        dslide_model_free(loaded_model);
        dslide_trainer_free(trainer);
        dslide_model_free(model);
    }
    assert_fails(dslide_dataset_open(cluster, "/nowhere", NULL, &none), DSLIDE_E_IO);
    dslide_dataset_free(data);
    dslide_cluster_close(cluster);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void test_host__is_left_as_it_was(void **state) {
    (void)state;
    static host before, after;
    setlocale(LC_ALL, "");
    signal(SIGUSR1, SIG_IGN);
    use_the_library(); /* the first use may read files, start threads */
    look_at(&before);
    use_the_library();
    look_at(&after);
    for (int s = 1; s < most_signals; ++s) {
        assert_true(before.actions[s].sa_handler == after.actions[s].sa_handler);
        assert_int_equal(before.actions[s].sa_flags, after.actions[s].sa_flags);
    }
    assert_true(after.actions[SIGUSR1].sa_handler == SIG_IGN);
    assert_true(after.actions[SIGINT].sa_handler == SIG_DFL);
    assert_memory_equal(&before.blocked, &after.blocked, sizeof before.blocked);
    assert_string_equal(before.locale, after.locale);
    assert_string_equal(before.directory, after.directory);
    assert_string_equal(before.environment, after.environment);
    assert_int_equal(before.rounding, after.rounding);
    assert_int_equal(before.control, after.control);
    assert_int_equal(before.descriptors, after.descriptors);
    assert_int_equal(before.mask, after.mask);
}

/* Before the very first use: what the first one changes. Runs in a fresh process, before the other tests. */
static void test_host__first_use_changes_nothing_but_threads(void **state) {
    (void)state;
    static host before, after;
    look_at(&before);
    use_the_library();
    look_at(&after);
    for (int s = 1; s < most_signals; ++s) assert_true(before.actions[s].sa_handler == after.actions[s].sa_handler);
    assert_memory_equal(&before.blocked, &after.blocked, sizeof before.blocked);
    assert_string_equal(before.locale, after.locale);
    assert_string_equal(before.environment, after.environment);
    assert_int_equal(before.rounding, after.rounding);
    assert_int_equal(before.control, after.control);
    assert_in_range(after.descriptors, before.descriptors, before.descriptors + 1);
}

/* A host may round as it likes; it gets its mode back, and training does not fail for it. */
static void test_host__rounding_mode_is_the_hosts(void **state) {
    (void)state;
    const int before = fegetround();
    fesetround(FE_UPWARD);
    use_the_library();
    const int after = fegetround();
    fesetround(before);
    assert_int_equal(after, FE_UPWARD);
}

static void test_host__nothing_is_printed(void **state) {
    (void)state;
    char path[] = "/tmp/dslide-printed-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    fflush(NULL);
    const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    use_the_library();
    fflush(NULL);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    const off_t printed = lseek(file, 0, SEEK_END);
    close(file);
    remove(path);
    assert_int_equal(printed, 0);
}

static int lines_logged, lines_elsewhere;
static void on_log(void *data, int32_t level, const char *line) {
    ++lines_logged;
    if (data != &lines_logged || level < DSLIDE_LOG_WARNING || level > DSLIDE_LOG_INFO || strchr(line, '\n'))
        ++lines_elsewhere;
}

static void test_host__log_goes_to_the_sink_alone(void **state) {
    (void)state;
    assert_fails(dslide_set_log(on_log, NULL, 0), DSLIDE_E_ARGUMENT);
    assert_fails(dslide_set_log(on_log, NULL, 3), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_set_log(on_log, &lines_logged, DSLIDE_LOG_INFO), DSLIDE_OK);
    use_the_library();
    assert_int_equal(lines_elsewhere, 0);
    const int so_far = lines_logged;
    assert_int_equal(dslide_set_log(NULL, NULL, DSLIDE_LOG_INFO), DSLIDE_OK);
    use_the_library();
    assert_int_equal(lines_logged, so_far);
}

/* Resident memory is flat over many cycles of making and freeing. */
static void test_host__does_not_leak(void **state) {
    (void)state;
    long kilobytes[2] = {0, 0};
#ifdef DSLIDE_SANITIZED
    skip();
#endif
    for (int round = 0; round < 60; ++round) {
        dslide_cluster *cluster = sample_cluster(2);
        dslide_model *model = sample_model(cluster);
        dslide_trainer *trainer = sample_trainer(model, DSLIDE_SELECT_SIMHASH);
        sample s;
        sample_init(&s);
        for (int step = 0; step < 3; ++step)
            assert_int_equal(dslide_trainer_step(trainer, &s.features, &s.labels, NULL, NULL), DSLIDE_OK);
        dslide_trainer_free(trainer);
        dslide_model_free(model);
        dslide_cluster_free(cluster);
        if (round == 19 || round == 59) {
            long pages = 0, resident = 0;
            FILE *file = fopen("/proc/self/statm", "r");
            assert_non_null(file);
            assert_int_equal(fscanf(file, "%ld %ld", &pages, &resident), 2);
            fclose(file);
            kilobytes[round == 59] = resident * (sysconf(_SC_PAGESIZE) / 1024);
        }
    }
    assert_in_range(kilobytes[1], 1, kilobytes[0] + 4096); /* a cycle holds more than 200 KiB: 40 of them 8 MiB */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host__first_use_changes_nothing_but_threads),
        cmocka_unit_test(test_host__is_left_as_it_was),
        cmocka_unit_test(test_host__rounding_mode_is_the_hosts),
        cmocka_unit_test(test_host__nothing_is_printed),
        cmocka_unit_test(test_host__log_goes_to_the_sink_alone),
        cmocka_unit_test(test_host__does_not_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
