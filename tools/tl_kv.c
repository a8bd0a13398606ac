/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_kv.c: one transaction on one key, for the handy commands.
 */
#include "tools/tl_kv.h"

#define TIMEOUT_MS 10000u

struct kv_args {
    const char *config;
    bool hex;
};

static int take_bytes(const struct tl_kv *kv, bool hex, const char *text, uint8_t *ret,
    size_t size_max, size_t *ret_size, const char *what)
{
    if (hex) {
        if (!tl_parse_hex(text, ret, size_max, ret_size))
            return tl_error(kv->self, "%s must be an even number of hex digits, at most %zu bytes",
                what, size_max);
        return -1;
    }
    size_t size = strlen(text);
    if (size > size_max)
        return tl_error(kv->self, "%s is longer than %zu bytes", what, size_max);
    memcpy(ret, text, size);
    *ret_size = size;
    return -1;
}

/* "-": the value comes from the standard input. */
static int take_value(struct tl_kv *kv, bool hex, const char *text)
{
    if (strcmp(text, "-") != 0)
        return take_bytes(
            kv, hex, text, kv->value, CAIRN_VALUE_SIZE_MAX, &kv->value_size, "the value");
    kv->value_size = fread(kv->value, 1, CAIRN_VALUE_SIZE_MAX, stdin);
    if (ferror(stdin) != 0)
        return tl_error(kv->self, "cannot read the value from the standard input");
    if (fgetc(stdin) != EOF)
        return tl_error(kv->self, "the value is longer than %u bytes", CAIRN_VALUE_SIZE_MAX);
    return -1;
}

static int open_cluster(
    struct tl_kv *kv, const struct kv_args *args, char **argv, int count, bool json)
{
    int rc;

    rc = take_bytes(kv, args->hex, argv[1], kv->key, CAIRN_KEY_SIZE_MAX, &kv->key_size, "the key");
    if (rc == -1 && count > 2)
        rc = take_value(kv, args->hex, argv[2]);
    if (rc != -1)
        return rc;
    rc = cairn_open(args->config, NULL, &kv->cluster);
    if (rc == 0)
        rc = cairn_table(kv->cluster, argv[0], &kv->table);
    if (rc == 0)
        rc = cairn_ctx_open(kv->cluster, &kv->ctx);
    return rc == 0 ? -1 : tl_cairn_error(kv->self, rc, json);
}

int tl_kv_run(const struct tl_command *self, int argc, char **argv, int args, cairn_tx_fn fn,
    struct tl_kv *kv, bool *ret_json, int *ret_error)
{
    struct kv_args a = {.config = NULL};
    bool json = false;
    const struct tl_option options[] = {
        {.name = "config", .arg = "FILE", .help = "the cluster's configuration", .text = &a.config},
        {.name = "hex", .help = "key and value are hex digits", .flag = &a.hex},
        {.name = "json", .help = "print one JSON object", .flag = &json},
        {.name = NULL},
    };
    int first, rc = tl_parse(self, options, argc, argv, args, args, &first);

    if (rc != -1)
        return rc;
    memset(kv, 0, sizeof(*kv));
    kv->self = self;
    if (a.config == NULL)
        return tl_error(self, "--config is needed; try `cairn %s --help`", self->name);
    kv->value = malloc(CAIRN_VALUE_SIZE_MAX);
    if (kv->value == NULL)
        return tl_error(self, "out of memory");
    rc = open_cluster(kv, &a, argv + first, args, json);
    if (rc != -1) {
        tl_kv_end(kv);
        return rc;
    }
    *ret_json = json;
    *ret_error = cairn_run(kv->ctx, fn, kv, TIMEOUT_MS, NULL);
    return -1;
}

void tl_kv_end(struct tl_kv *kv)
{
    if (kv->ctx != NULL)
        cairn_ctx_close(&kv->ctx);
    if (kv->cluster != NULL)
        cairn_close(&kv->cluster);
    free(kv->value);
    kv->value = NULL;
}

int tl_kv_error(const struct tl_kv *kv, int error, bool json)
{
    char text[512], token[CAIRN_TOKEN_SIZE];

    if (error != CAIRN_E_IN_DOUBT)
        return tl_cairn_error(kv->self, error, json);
    cn_error_copy(text, sizeof(text)); /* the next call may replace it */
    if (cairn_ctx_token(kv->ctx, token) != 0)
        token[0] = '\0';
    if (json)
        tl_json_print(json_pack("{s:s, s:s, s:s}", "error", cairn_error_name(error), "text", text,
            "token", token));
    (void)tl_error(kv->self, "%s\nAsk later: cairn resolve --config FILE %s", text, token);
    return TL_BAD;
}

static void print_outcome(const struct tl_kv *kv, bool json)
{
    char token[CAIRN_TOKEN_SIZE];

    if (!json) {
        printf("%s\n", cairn_outcome_name(CAIRN_OUTCOME_COMMITTED));
        return;
    }
    json_t *o = json_pack("{s:s}", "outcome", cairn_outcome_name(CAIRN_OUTCOME_COMMITTED));
    if (cairn_ctx_token(kv->ctx, token) == 0)
        (void)json_object_set_new(o, "token", json_string(token));
    tl_json_print(o);
}

int tl_kv_write(
    const struct tl_command *self, int argc, char **argv, int args, cairn_tx_fn fn)
{
    struct tl_kv kv;
    bool json;
    int error, rc = tl_kv_run(self, argc, argv, args, fn, &kv, &json, &error);

    if (rc != -1)
        return rc;
    if (error == 0) {
        print_outcome(&kv, json);
        rc = TL_OK;
    } else {
        rc = tl_kv_error(&kv, error, json);
    }
    tl_kv_end(&kv);
    return rc;
}
