/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vm_load.c: the program: options, keys and values; see vm_load.h.
 *
 *   vm_load --config FILE --ledger PATH --seed N [OPTION...] run
 *   vm_load --config FILE --ledger FILE [--deadline S] check
 */
#include "tests/vm/vm_load.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>

volatile int vl_stop;

/* ---- keys ---- */

/* Make the name end in a number so that the key's shard is `node`. */
static void aim(const struct vl_place *place, struct vl_key *key, uint32_t node)
{
    size_t size = strlen(key->name);

    for (uint32_t i = 0; i < 100000; i++) {
        (void)snprintf(key->name + size, VL_NAME_SIZE - size, "-%u", i);
        if (txn_config_shard(place->config, key->table, key->name, strlen(key->name)) == node)
            return;
    }
    cn_panic(__FILE__, __LINE__, "no key for a node");
}

uint32_t vl_member_count(const struct vl_place *place, uint32_t group)
{
    uint32_t most = place->config->node_count < VL_MEMBERS_MAX ? place->config->node_count
                                                               : VL_MEMBERS_MAX;
    return 1 + group % most;
}

void vl_member_key(const struct vl_place *place, const struct vl_writer *writer, uint32_t group,
    uint32_t member, struct vl_key *ret)
{
    ret->table = place->table[(group + member) % 2];
    (void)snprintf(ret->name, sizeof(ret->name), "vl-%llx-%u-g%u-%u",
        (unsigned long long)writer->seed, writer->thread, group, member);
    aim(place, ret, (group + member) % place->config->node_count);
}

void vl_slot_key(const struct vl_place *place, const struct vl_writer *writer, uint32_t slot,
    struct vl_key *ret)
{
    ret->table = place->table[slot % 2];
    (void)snprintf(ret->name, sizeof(ret->name), "vl-%llx-%u-s%u",
        (unsigned long long)writer->seed, writer->thread, slot);
}

void vl_account_key(const struct vl_place *place, uint32_t account, struct vl_key *ret)
{
    ret->table = place->table[account % 2];
    (void)snprintf(ret->name, sizeof(ret->name), "vl-account-%u", account);
}

/* ---- values ---- */

uint32_t vl_value_make(const struct vl_key *key, uint64_t number, uint8_t value[VL_VALUE_MAX])
{
    uint32_t seed = cn_crc32c((uint32_t)number, key->name, strlen(key->name));
    uint32_t size = 16 + seed % (number % 8 == 0 ? VL_VALUE_MAX - 16 : 80);
    struct le64 number_le = le64_make(number);

    memcpy(value, &number_le, sizeof(number_le));
    for (uint32_t i = 8; i < size; i++)
        value[i] = (uint8_t)(seed >> (i % 4 * 8)) ^ (uint8_t)i;
    return size;
}

bool vl_value_read(
    const struct vl_key *key, const uint8_t *value, size_t size, uint64_t *ret_number)
{
    uint8_t good[VL_VALUE_MAX];
    struct le64 number;

    if (size < sizeof(number))
        return false;
    memcpy(&number, value, sizeof(number));
    *ret_number = le64_get(number);
    return vl_value_make(key, *ret_number, good) == size && memcmp(good, value, size) == 0;
}

int vl_get(struct cairn_tx *tx, const struct vl_key *key, bool for_update, uint64_t *ret_number)
{
    uint8_t value[VL_VALUE_MAX];
    size_t size = 0;
    int rc = (for_update ? cairn_get_for_update : cairn_get)(
        tx, key->table, key->name, strlen(key->name), value, sizeof(value), &size);

    *ret_number = 0;
    if (rc == CAIRN_E_NOT_FOUND)
        return 0;
    if (rc == 0 && !vl_value_read(key, value, size, ret_number))
        return cn_fail(CAIRN_E_CORRUPT_ITEM, "%s: holds what nobody wrote", key->name);
    return rc;
}

int vl_put(struct cairn_tx *tx, const struct vl_key *key, uint64_t number)
{
    uint8_t value[VL_VALUE_MAX];
    uint32_t size = vl_value_make(key, number, value);

    return cairn_put(tx, key->table, key->name, strlen(key->name), value, size);
}

int vl_get_balance(
    struct cairn_tx *tx, const struct vl_key *key, bool for_update, int64_t *ret_balance)
{
    size_t size = 0;
    int rc = (for_update ? cairn_get_for_update : cairn_get)(tx, key->table, key->name,
        strlen(key->name), ret_balance, sizeof(*ret_balance), &size);

    if (rc == 0 && size != sizeof(*ret_balance))
        return cn_fail(CAIRN_E_CORRUPT_ITEM, "%s: holds what nobody wrote", key->name);
    return rc;
}

int vl_put_balance(struct cairn_tx *tx, const struct vl_key *key, int64_t balance)
{
    return cairn_put(
        tx, key->table, key->name, strlen(key->name), &balance, sizeof(balance));
}

/* ---- the cluster ---- */

int vl_open(const struct vl_options *options, struct vl_place *place)
{
    int rc = txn_config_load(options->config, &place->config);

    if (rc == 0 && place->config->table_count < 2)
        rc = cn_fail(CAIRN_E_CONFIG, "%s: needs two tables", options->config);
    if (rc == 0)
        rc = cairn_open(options->config, NULL, &place->cluster);
    for (uint32_t i = 0; i < 2 && rc == 0; i++)
        place->table[i] = place->config->table[i].id;
    return rc;
}

void vl_close(struct vl_place *place)
{
    if (place->cluster != NULL)
        cairn_close(&place->cluster);
    if (place->config != NULL)
        txn_config_free(&place->config);
}

/* ---- options ---- */

static void handle_stop(int signal_number)
{
    (void)signal_number;
    vl_stop = 1;
}

static bool parse(struct vl_options *o, int argc, char **argv)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
        {"ledger", required_argument, NULL, 'l'}, {"seed", required_argument, NULL, 's'},
        {"threads", required_argument, NULL, 'j'}, {"seconds", required_argument, NULL, 't'},
        {"deadline", required_argument, NULL, 'd'}, {"doubt", required_argument, NULL, 'D'},
        {"sync", no_argument, NULL, 'y'}, {0}};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'c': o->config = optarg; break;
        case 'l': o->ledger = optarg; break;
        case 's': o->seed = strtoull(optarg, NULL, 0); break;
        case 'j': o->threads = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 't': o->seconds = strtoull(optarg, NULL, 10); break;
        case 'd': o->deadline_s = strtoull(optarg, NULL, 10); break;
        case 'D': o->doubt = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'y': o->sync = true; break;
        default: return false;
        }
    }
    return optind + 1 == argc && o->config != NULL && o->ledger != NULL && o->threads >= 1 &&
        o->threads <= VL_THREADS_MAX;
}

int main(int argc, char **argv)
{
    struct vl_options o = {.threads = 2, .deadline_s = 60};
    struct sigaction action = {.sa_handler = handle_stop};

    if (parse(&o, argc, argv)) {
        (void)sigaction(SIGTERM, &action, NULL);
        (void)sigaction(SIGINT, &action, NULL);
        cn_env_system_log_level(CN_LOG_ERROR);
        if (strcmp(argv[optind], "run") == 0 && o.seed != 0)
            return vl_run(&o);
        if (strcmp(argv[optind], "check") == 0)
            return vl_check(&o);
    }
    (void)fprintf(stderr,
        "usage: vm_load --config FILE --ledger PATH --seed N [--threads N] [--seconds S]\n"
        "               [--sync] [--doubt N] run\n"
        "       vm_load --config FILE --ledger FILE [--deadline S] check\n");
    return 2;
}
