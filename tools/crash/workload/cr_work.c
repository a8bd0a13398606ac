/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work.c: the table of workloads, and the text that names some of them.
 */
#include "tools/crash/workload/cr_work.h"

#include "tools/crash/workload/cr_work_list.h"

#define WORD_MAX 4096u

static const struct cairn_workload *const table[] = {
#define CR_X(upper, lower) &cr_work_##lower,
    CR_WORKLOADS(CR_X)
#undef CR_X
};

static const char mixed_summary[] = "all of these together: each run draws some, and every "
    "operation is drawn from one of them (default)";

const struct cairn_workload *cr_work_at(uint32_t at)
{
    return at < CN_ARRAY_SIZE(table) ? table[at] : NULL;
}

const struct cairn_workload *cr_work_find(const char *name)
{
    for (size_t i = 0; i < CN_ARRAY_SIZE(table); i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}

static bool is_file(const char *word)
{
    size_t n = strlen(word);

    return strchr(word, '/') != NULL || (n > 3 && strcmp(word + n - 3, ".so") == 0);
}

static int no_such(const char *word)
{
    char all[512] = "mixed";
    size_t used = strlen(all);

    for (size_t i = 0; i < CN_ARRAY_SIZE(table) && used < sizeof(all); i++)
        used += (size_t)snprintf(all + used, sizeof(all) - used, ", %s", table[i]->name);
    if (strcmp(word, "mixed") == 0)
        return cn_fail(CAIRN_E_CONFIG, "workload \"mixed\" stands for all that are built in: name "
            "it alone, or name those that you want");
    return cn_fail(CAIRN_E_CONFIG, "no workload \"%.80s\"; built in are: %s; your own is a shared "
        "object, for example ./shop.so", word, all);
}

static int open_one(const char *word, const struct cairn_workload **ret)
{
    if (is_file(word))
        return cr_work_load(word, ret);
    *ret = cr_work_find(word);
    return *ret != NULL ? 0 : no_such(word);
}

/* Two of one name would take each other's keys for their own, and see a violation in that. */
static int check_twice(const struct cairn_workload *const *workload, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (strcmp(workload[i]->name, workload[at]->name) == 0)
            return cn_fail(CAIRN_E_CONFIG, "workload \"%.40s\" is named twice; their keys would be "
                "the same", workload[at]->name);
    return 0;
}

static int open_all(const char *text, const struct cairn_workload **ret_workload)
{
    char word[WORD_MAX];
    uint32_t words = 1;

    for (const char *p = text; *p != '\0'; p++)
        words += *p == ',';
    if (words > CR_PARTS_MAX)
        return cn_fail(CAIRN_E_CONFIG, "more than %u workloads in one run", CR_PARTS_MAX);
    for (uint32_t count = 0;; count++) {
        size_t n = strcspn(text, ",");
        if (n == 0 || n >= sizeof(word))
            return cn_fail(CAIRN_E_CONFIG, "workload: a name is %s", n == 0 ? "empty" : "too long");
        memcpy(word, text, n);
        word[n] = '\0';
        int rc = open_one(word, &ret_workload[count]);
        if (rc == 0)
            rc = check_twice(ret_workload, count);
        if (rc != 0)
            return rc;
        ret_workload[count + 1] = NULL;
        if (text[n] == '\0')
            return 0;
        text += n + 1;
    }
}

int cr_work_open(
    const char *text, const struct cairn_workload *ret_workload[CR_PARTS_MAX + 1])
{
    ret_workload[0] = NULL;
    int rc = strcmp(text, "mixed") == 0 ? 0 : open_all(text, ret_workload);
    if (rc != 0)
        ret_workload[0] = NULL;
    return rc;
}

void cr_work_list(FILE *to)
{
    fprintf(to, "%-12s %s\n", "mixed", mixed_summary);
    for (size_t i = 0; i < CN_ARRAY_SIZE(table); i++)
        fprintf(to, "%-12s %s\n", table[i]->name, table[i]->summary);
}

const char *cr_work_mismatch_hint(const struct cairn_workload *const *workload)
{
    for (uint32_t i = 0; workload[i] != NULL; i++)
        if (cr_work_find(workload[i]->name) != workload[i])
            return "a workload of yours most likely takes a decision from the clock, rand(), "
                   "addresses or uninitialised memory, or keeps something in static variables: "
                   "take every decision from cairn_run_choose() and keep what lasts in "
                   "cairn_run_state()";
    return "the harness itself depends on something that the seed does not control: please report "
           "it with this command";
}
