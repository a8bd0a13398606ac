/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_resolve.c: `cairn resolve`: turn a token into a verdict.
 */
#include "tools/tl.h"

static int ask(const struct tl_command *self, const char *path, const char *token, bool json)
{
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    struct cairn *cluster = NULL;
    struct cairn_ctx *ctx = NULL;
    int exit_code = TL_OK, rc = cairn_open(path, NULL, &cluster);

    if (rc == 0)
        rc = cairn_ctx_open(cluster, &ctx);
    if (rc == 0)
        rc = cairn_resolve(ctx, token, &outcome);
    if (rc == 0 && json)
        tl_json_print(
            json_pack("{s:s, s:s}", "token", token, "outcome", cairn_outcome_name(outcome)));
    else if (rc == 0)
        printf("%s\n", cairn_outcome_name(outcome));
    else
        exit_code = tl_cairn_error(self, rc, json);
    if (rc == CAIRN_E_EXPIRED || rc == CAIRN_E_IN_DOUBT)
        exit_code = TL_BAD;
    if (ctx != NULL)
        cairn_ctx_close(&ctx);
    if (cluster != NULL)
        cairn_close(&cluster);
    return exit_code;
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    const char *path = NULL;
    bool json = false;
    const struct tl_option options[] = {
        {.name = "config", .arg = "FILE", .help = "the cluster's configuration", .text = &path},
        {.name = "json", .help = "print one JSON object", .flag = &json},
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, 1, 1, &first);

    if (rc != -1)
        return rc;
    if (path == NULL)
        return tl_error(self, "--config is needed; try `cairn resolve --help`");
    return ask(self, path, argv[first], json);
}

const struct tl_command cmd_resolve = {
    .name = "resolve",
    .args = "--config FILE [--json] TOKEN",
    .summary = "Tell what became of a transaction: COMMITTED or ABORTED.",
    .example = "  cairn resolve --config /dev/shm/bank/cairn.conf c1-5f0c...\n"
               "  (asking prevents: a transaction that was not logged everywhere stays ABORTED;\n"
               "  exit 1: the verdict has expired, or is in doubt; a node that is down: exit 2;\n"
               "  put and delete tell their token with --json)\n",
    .run = run,
};
