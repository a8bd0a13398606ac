/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd_get.c: `cairn get`: read one key in a transaction of its own.
 */
#include "tools/tl_kv.h"

static int read_key(struct cairn_tx *tx, void *arg)
{
    struct tl_kv *kv = arg;

    return cairn_get(
        tx, kv->table, kv->key, kv->key_size, kv->value, CAIRN_VALUE_SIZE_MAX, &kv->value_size);
}

static void print_value(const struct tl_kv *kv, bool json)
{
    if (!json) {
        tl_print_bytes(kv->value, kv->value_size);
        return;
    }
    char *hex = malloc(2 * kv->value_size + 1);
    if (hex == NULL)
        return;
    hex[0] = '\0';
    for (size_t i = 0; i < kv->value_size; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", kv->value[i]);
    json_t *o = json_pack("{s:b, s:s}", "found", 1, "value_hex", hex);
    json_t *text = json_stringn((const char *)kv->value, kv->value_size); /* NULL: not UTF-8 */
    if (text != NULL)
        (void)json_object_set_new(o, "value", text);
    tl_json_print(o);
    free(hex);
}

static int run(const struct tl_command *self, int argc, char **argv)
{
    struct tl_kv kv;
    bool json;
    int error, rc = tl_kv_run(self, argc, argv, 2, read_key, &kv, &json, &error);

    if (rc != -1)
        return rc;
    if (error == 0) {
        print_value(&kv, json);
        rc = TL_OK;
    } else if (error == CAIRN_E_NOT_FOUND) {
        if (json)
            tl_json_print(json_pack("{s:b}", "found", 0));
        else
            (void)tl_error(self, "no such key");
        rc = TL_BAD;
    } else {
        rc = tl_cairn_error(self, error, json);
    }
    tl_kv_end(&kv);
    return rc;
}

const struct tl_command cmd_get = {
    .name = "get",
    .args = "--config FILE [--hex] [--json] TABLE KEY",
    .summary = "Read a key.",
    .example = "  cairn get --config /dev/shm/bank/cairn.conf accounts alice\n"
               "  (a value that is not printable is shown as hex:...)\n",
    .run = run,
};
