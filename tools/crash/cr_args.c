/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_args.c: options that several subcommands have.
 */
#include "tools/crash/cr_args.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/crash/campaign/cr_mutants.h"
#include "tools/crash/tell/cr_setup_text.h"

#define MUTANTS_PROGRAM "cairn-crash-mutants"
#define CLOSED_PROGRAM "cairn-crash-closed"

static bool parse_seed(const char *text, uint64_t *ret_seed)
{
    char *end;

    errno = 0;
    *ret_seed = strtoull(text, &end, 0);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

static bool parse_time(const char *text, double *ret_seconds)
{
    static const struct { const char *unit; double seconds; } units[] = {
        {"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
    char *end;
    double v = strtod(text, &end);

    if (text[0] < '0' || text[0] > '9')
        return false;
    for (size_t i = 0; i < CN_ARRAY_SIZE(units); i++)
        if (strcmp(end, units[i].unit) == 0) {
            *ret_seconds = v * units[i].seconds;
            return *ret_seconds > 0 && *ret_seconds <= 1e7;
        }
    return false;
}

int cr_args_check(const struct tl_command *self, struct cr_args *args)
{
    args->seed = 1;
    if (args->seed_text != NULL && !parse_seed(args->seed_text, &args->seed))
        return tl_error(
            self, "--seed: must be a number below 2^64, not \"%.40s\"", args->seed_text);
    if (args->time_text != NULL && !parse_time(args->time_text, &args->seconds))
        return tl_error(self, "--time: must be like 90, 90s, 10m or 8h, not \"%.40s\"",
            args->time_text);
    if (args->jobs == 0)
        args->jobs = cr_jobs_default();
    return -1;
}

int cr_args_setup(
    const struct tl_command *self, const struct cr_args *args, struct cr_setup *setup)
{
    int rc = 0;

    if (args->mode != NULL)
        rc = cr_mode_parse(args->mode, setup);
    if (rc == 0 && args->faults != NULL)
        rc = cr_faults_parse(args->faults, setup->faults, &setup->faults);
    if (rc == 0 && args->workload != NULL)
        rc = cr_work_open(args->workload, setup->workload);
    return rc == 0 ? -1 : tl_error(self, "%s", cairn_last_error());
}

static int kept_argc;
static char **kept_argv;

void cr_args_keep(int argc, char **argv)
{
    kept_argc = argc;
    kept_argv = argv;
}

/* A program beside this one. */
static int find_beside(const struct tl_command *self, const char *name, char path[4096])
{
    ssize_t n = readlink("/proc/self/exe", path, 4096 - 64);

    CAIRN_ASSERT(strlen(name) < 63);
    if (n < 0)
        return tl_error(self, "cannot find this program: %s", strerror(errno));
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    CAIRN_ASSERT(slash != NULL);
    memcpy(slash + 1, name, strlen(name) + 1);
    return -1;
}

int cr_args_closed(const struct tl_command *self)
{
    char path[4096], here[4096];
    int rc = find_beside(self, CLOSED_PROGRAM, path);
    ssize_t n = readlink("/proc/self/exe", here, sizeof(here) - 1);

    if (rc != -1)
        return rc;
    here[n < 0 ? 0 : n] = '\0';
    if (strcmp(path, here) == 0)
        return -1; /* it is this one */
    (void)fflush(stdout);
    (void)execv(path, kept_argv);
    return -1;
}

static int go_on_in_mutants(const struct tl_command *self)
{
    char path[4096];
    int rc = find_beside(self, MUTANTS_PROGRAM, path);

    if (rc != -1)
        return rc;
    (void)fflush(stdout);
    (void)execv(path, kept_argv);
    return tl_error(self,
        "cannot run %s: %s\nMutants are compiled into a program of their own; build the target "
        "cairn-crash-mutants", path, strerror(errno));
}

int cr_args_mutant(const struct tl_command *self, const char *mutant, bool all)
{
    int number;

    if (mutant != NULL && !cr_mutant_find(mutant, &number))
        return tl_error(
            self, "no mutant \"%.40s\"; `cairn crash mutants --list` lists them", mutant);
    if (mutant != NULL && cr_mutant_use(number))
        return -1;
    if (mutant == NULL && (!all || cr_mutants_built()))
        return -1;
    return go_on_in_mutants(self);
}

const char *cr_args_line(char *text, size_t size)
{
    (void)snprintf(text, size, "cairn crash");
    for (int i = 1; i < kept_argc; i++)
        cr_word_append(text, size, kept_argv[i]);
    return text;
}

int cr_args_folder(const struct tl_command *self, const char *folder)
{
    struct stat st;

    if (folder == NULL)
        return -1;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return tl_error(self, "--keep: cannot make %s: %s", folder, strerror(errno));
    if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))
        return tl_error(self, "--keep: %s is not a folder", folder);
    return -1;
}
