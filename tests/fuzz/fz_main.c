/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fz_main.c: runs a fuzz target over files and folders of files, in the order of their names: the
 * corpus as a test, in every build and with every compiler. What stops it names the file.
 */
#include "tests/fuzz/fz_common.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef FZ_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#define INPUT_MAX (1u << 20)
#define HANG_S 20u

/* A target need not have one. */
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc CN_UNUSED, char ***argv CN_UNUSED)
{
    return 0;
}

static const char *current = "(none)";
static unsigned run;

static void name_input(void)
{
    static const char text[] = "fuzz: stopped by this input: ";

    if (write(2, text, sizeof(text) - 1) < 0 || write(2, current, strlen(current)) < 0 ||
        write(2, "\n", 1) < 0)
        _exit(2);
}

static void on_signal(int number)
{
    name_input();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static int run_file(const char *path)
{
    FILE *file = fopen(path, "re");
    uint8_t *data = malloc(INPUT_MAX), *exact;
    size_t size;

    if (file == NULL || data == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 2;
    }
    size = fread(data, 1, INPUT_MAX, file);
    (void)fclose(file);
    exact = malloc(size > 0 ? size : 1); /* so that a sanitizer sees its end */
    CAIRN_ASSERT(exact != NULL);
    memcpy(exact, data, size);
    free(data);
    current = path;
    (void)alarm(HANG_S);
    (void)LLVMFuzzerTestOneInput(exact, size);
    (void)alarm(0);
    current = "(none: all have run)";
    free(exact);
    run++;
    return 0;
}

static int run_path(const char *path)
{
    struct dirent **list;
    struct stat st;
    int count, status = 0;

    if (stat(path, &st) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 2;
    }
    if (!S_ISDIR(st.st_mode))
        return run_file(path);
    count = scandir(path, &list, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char name[4096];

        (void)snprintf(name, sizeof(name), "%s/%s", path, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && status == 0)
            status = run_path(name);
        free(list[i]);
    }
    if (count >= 0)
        free(list);
    return count < 0 ? 2 : status;
}

int main(int argc, char **argv)
{
    int status = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE|FOLDER...\n", argv[0]);
        return 2;
    }
#ifdef FZ_ASAN /* tells more of the others than a handler here could */
    __sanitizer_set_death_callback(name_input);
#else
    (void)signal(SIGSEGV, on_signal);
#endif
    (void)signal(SIGABRT, on_signal);
    (void)signal(SIGALRM, on_signal);
    (void)LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc && status == 0; i++)
        status = run_path(argv[i]);
    printf("%u inputs\n", run);
    return status != 0 || run > 0 ? status : 2;
}
