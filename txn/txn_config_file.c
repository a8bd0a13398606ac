/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_config_file.c: read the configuration file with libconfig. Strict: a name that is not known
 * is an error with the nearest known one, and every error says file, line, setting and what is
 * allowed. Relative paths (pools, and socket addresses of the `emu` fabric) become absolute here,
 * from the folder of the file, so that a process may change its folder and two spellings of one
 * path are seen.
 */
#include "txn/txn_config_file.h"

#include <errno.h>
#include <libconfig.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>

struct reader {
    struct txn_config *config;
    struct txn_config_lines lines;
    char folder[PATH_MAX];
};

/* Distance of two names (insert, delete, replace one letter), to say "did you mean". */
static unsigned distance(const char *a, const char *b)
{
    enum { LENGTH_MAX = 24 };
    unsigned row[LENGTH_MAX + 1];
    size_t a_size = strlen(a), b_size = strlen(b);

    if (a_size > LENGTH_MAX || b_size > LENGTH_MAX)
        return UINT_MAX;
    for (unsigned j = 0; j <= b_size; j++)
        row[j] = j;
    for (unsigned i = 1; i <= a_size; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= b_size; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[b_size];
}

static int line_of(const config_setting_t *setting)
{
    return (int)config_setting_source_line(setting);
}

/* Every child of `group` is one of `names` (NULL-terminated). `where`: "nodes[0]." or "". */
static int check_names(
    struct reader *r, const config_setting_t *group, const char *where, const char *const *names)
{
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *child = config_setting_get_elem(group, (unsigned)i);
        const char *name = config_setting_name(child), *near = NULL;
        unsigned best = 3;
        char all[160] = "";
        bool known = false;

        for (const char *const *n = names; *n != NULL; n++) {
            unsigned d = distance(name, *n);
            known = known || d == 0;
            if (d < best) {
                best = d;
                near = *n;
            }
            size_t used = strlen(all);
            (void)snprintf(all + used, sizeof(all) - used, "%s%s", used == 0 ? "" : ", ", *n);
        }
        if (known)
            continue;
        if (near != NULL)
            return txn_config_fail(r->config, line_of(child),
                "%s%s: no such setting; did you mean \"%s\"? Allowed here: %s", where, name, near,
                all);
        return txn_config_fail(
            r->config, line_of(child), "%s%s: no such setting; allowed here: %s", where, name, all);
    }
    return 0;
}

static int missing(struct reader *r, const config_setting_t *group, const char *where,
    const char *name, const char *what)
{
    return txn_config_fail(
        r->config, line_of(group), "%s%s: is missing; it must be %s", where, name, what);
}

/* A string that fits; `what` says in errors what it should be. */
static int read_string(struct reader *r, const config_setting_t *group, const char *where,
    const char *name, const char *what, char *ret, size_t ret_size)
{
    const config_setting_t *s = config_setting_get_member(group, name);

    if (s == NULL)
        return missing(r, group, where, name, what);
    if (config_setting_type(s) != CONFIG_TYPE_STRING)
        return txn_config_fail(
            r->config, line_of(s), "%s%s: must be %s, in quotes", where, name, what);
    const char *text = config_setting_get_string(s);
    if (text[0] == '\0')
        return txn_config_fail(
            r->config, line_of(s), "%s%s: is empty; it must be %s", where, name, what);
    if (strlen(text) >= ret_size)
        return txn_config_fail(
            r->config, line_of(s), "%s%s: is longer than %zu bytes", where, name, ret_size - 1);
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}

struct range {
    uint64_t min, max;
};

static int out_of_range(struct reader *r, const config_setting_t *s, const char *where,
    const char *name, struct range range)
{
    return txn_config_fail(r->config, line_of(s), "%s%s: must be a number from %llu to %llu", where,
        name, (unsigned long long)range.min, (unsigned long long)range.max);
}

/* An integer in a range; a setting that is not there leaves *ret alone. */
static int read_number(struct reader *r, const config_setting_t *group, const char *where,
    const char *name, struct range range, uint64_t *ret)
{
    const config_setting_t *s = config_setting_get_member(group, name);

    if (s == NULL)
        return 0;
    if (config_setting_type(s) != CONFIG_TYPE_INT && config_setting_type(s) != CONFIG_TYPE_INT64)
        return out_of_range(r, s, where, name, range);
    long long value = config_setting_get_int64(s);
    if (value < 0 || (uint64_t)value < range.min || (uint64_t)value > range.max)
        return out_of_range(r, s, where, name, range);
    *ret = (uint64_t)value;
    return 0;
}

/* One word of a list; a setting that is not there leaves *ret alone. */
struct choice {
    const char *name;
    int value;
};
static int read_choice(struct reader *r, const config_setting_t *group, const char *where,
    const char *name, const struct choice *choices, int *ret)
{
    const config_setting_t *s = config_setting_get_member(group, name);
    const char *text = s == NULL || config_setting_type(s) != CONFIG_TYPE_STRING
        ? ""
        : config_setting_get_string(s);
    char all[160] = "";

    if (s == NULL)
        return 0;
    for (const struct choice *c = choices; c->name != NULL; c++) {
        if (strcmp(text, c->name) == 0) {
            *ret = c->value;
            return 0;
        }
        size_t used = strlen(all);
        (void)snprintf(
            all + used, sizeof(all) - used, "%s\"%s\"", used == 0 ? "" : ", ", c->name);
    }
    return txn_config_fail(r->config, line_of(s), "%s%s: must be one of %s", where, name, all);
}

/* A part of one, "0.7", in thousandths; a setting that is not there leaves *ret alone. */
static int read_part(struct reader *r, const config_setting_t *group, const char *where,
    const char *name, uint32_t *ret)
{
    const config_setting_t *s = config_setting_get_member(group, name);
    double value = -1;

    if (s == NULL)
        return 0;
    if (config_setting_type(s) == CONFIG_TYPE_FLOAT)
        value = config_setting_get_float(s);
    else if (config_setting_type(s) == CONFIG_TYPE_INT)
        value = config_setting_get_int(s);
    if (!(value >= 0 && value <= 1))
        return txn_config_fail(
            r->config, line_of(s), "%s%s: must be a number from 0 to 1, as 0.7", where, name);
    *ret = (uint32_t)(value * 1000 + 0.5);
    return 0;
}

/* "512M" or a number of bytes; a setting that is not there leaves *ret alone. */
static int read_size(struct reader *r, const config_setting_t *group, const char *where,
    const char *name, uint64_t *ret)
{
    const config_setting_t *s = config_setting_get_member(group, name);
    uint64_t size = 0;
    bool good = false;

    if (s == NULL)
        return 0;
    if (config_setting_type(s) == CONFIG_TYPE_STRING) {
        good = txn_parse_size(config_setting_get_string(s), &size);
    } else if (config_setting_type(s) == CONFIG_TYPE_INT ||
        config_setting_type(s) == CONFIG_TYPE_INT64) {
        long long value = config_setting_get_int64(s);
        good = value > 0;
        size = (uint64_t)value;
    }
    if (!good || size == 0)
        return txn_config_fail(r->config, line_of(s),
            "%s%s: must be a size: bytes, or a number with k, M, G or T in quotes (\"512M\")",
            where, name);
    *ret = size;
    return 0;
}

/* Make a path absolute, from the folder of the file. */
static int resolve_path(struct reader *r, const config_setting_t *group, const char *where,
    const char *name, char *path, size_t path_size)
{
    char full[2 * PATH_MAX];

    if (path[0] == '/' || path[0] == '@')
        return 0;
    const char *tail = strncmp(path, "./", 2) == 0 ? path + 2 : path;
    int n = snprintf(
        full, sizeof(full), "%s/%s", strcmp(r->folder, "/") == 0 ? "" : r->folder, tail);
    if (n < 0 || (size_t)n >= path_size)
        return txn_config_fail(r->config, line_of(config_setting_get_member(group, name)),
            "%s%s: \"%s\" is longer than the %zu bytes allowed; use a shorter path", where, name,
            full, path_size - 1);
    memcpy(path, full, (size_t)n + 1);
    return 0;
}

static int read_node(struct reader *r, const config_setting_t *group, uint32_t i)
{
    static const char *const names[] = {"id", "address", "pool", "size", "persistence", NULL};
    static const struct choice persistences[] = {{"auto", TXN_PERSISTENCE_AUTO},
        {"apm", TXN_PERSISTENCE_APM}, {"gpspm", TXN_PERSISTENCE_GPSPM},
        {"eadr", TXN_PERSISTENCE_EADR}, {"emulated", TXN_PERSISTENCE_EMULATED}, {NULL, 0}};
    struct txn_config_node *node = &r->config->node[i];
    char where[32];
    uint64_t id = 0;
    int rc, persistence = TXN_PERSISTENCE_AUTO;

    (void)snprintf(where, sizeof(where), "nodes[%u].", i);
    r->lines.node[i] = line_of(group);
    if (!config_setting_is_group(group))
        return txn_config_fail(r->config, line_of(group),
            "nodes[%u]: must be a group: { id = 1; address = \"...\"; pool = \"...\"; }", i);
    rc = check_names(r, group, where, names);
    if (rc == 0 && config_setting_get_member(group, "id") == NULL)
        rc = missing(r, group, where, "id", "a number from 1 to 65535");
    if (rc == 0)
        rc = read_number(r, group, where, "id", (struct range){1, UINT16_MAX}, &id);
    node->id = (uint16_t)id;
    if (rc == 0)
        rc = read_string(r, group, where, "address", "where the node listens", node->address,
            sizeof(node->address));
    if (rc == 0 && strcmp(r->config->fabric, "emu") == 0)
        rc = resolve_path(r, group, where, "address", node->address, sizeof(node->address));
    if (rc == 0)
        rc = read_string(
            r, group, where, "pool", "the path of the pool", node->pool, sizeof(node->pool));
    if (rc == 0)
        rc = resolve_path(r, group, where, "pool", node->pool, sizeof(node->pool));
    if (rc == 0)
        rc = read_size(r, group, where, "size", &node->pool_size);
    if (rc == 0 && node->pool_size == 0 && strncmp(node->pool, "/dev/dax", 8) != 0)
        rc = missing(r, group, where, "size", "the size of the pool, as \"1G\"");
    if (rc == 0)
        rc = read_choice(r, group, where, "persistence", persistences, &persistence);
    node->persistence = (enum txn_persistence)persistence;
    return rc;
}

static int read_table(struct reader *r, const config_setting_t *group, uint32_t i)
{
    static const char *const names[] = {"id", "name", NULL};
    struct txn_config_table *table = &r->config->table[i];
    char where[32];
    uint64_t id = 0;
    int rc;

    (void)snprintf(where, sizeof(where), "tables[%u].", i);
    r->lines.table[i] = line_of(group);
    if (!config_setting_is_group(group))
        return txn_config_fail(r->config, line_of(group),
            "tables[%u]: must be a group: { id = 1; name = \"accounts\"; }", i);
    rc = check_names(r, group, where, names);
    if (rc == 0 && config_setting_get_member(group, "id") == NULL)
        rc = missing(r, group, where, "id", "a number from 1 to 65535");
    if (rc == 0)
        rc = read_number(r, group, where, "id", (struct range){1, UINT16_MAX}, &id);
    table->id = (uint16_t)id;
    if (rc == 0)
        rc = read_string(
            r, group, where, "name", "the table's name", table->name, sizeof(table->name));
    return rc;
}

/* The list `name` of groups, each read by `read_one`. */
static int read_list(struct reader *r, const config_setting_t *root, const char *name, uint32_t max,
    int (*read_one)(struct reader *, const config_setting_t *, uint32_t), uint32_t *ret_count)
{
    const config_setting_t *list = config_setting_get_member(root, name);

    if (list == NULL)
        return txn_config_fail(r->config, 0,
            "%s: is missing; it must be a list: %s = ( { id = 1; ... } );", name, name);
    if (!config_setting_is_list(list))
        return txn_config_fail(r->config, line_of(list),
            "%s: must be a list in round brackets: ( { id = 1; ... }, ... )", name);
    int count = config_setting_length(list);
    if (count < 1 || (uint32_t)count > max)
        return txn_config_fail(
            r->config, line_of(list), "%s: has %d entries; allowed are 1 to %u", name, count, max);
    for (int i = 0; i < count; i++) {
        int rc = read_one(r, config_setting_get_elem(list, (unsigned)i), (uint32_t)i);
        if (rc != 0)
            return rc;
    }
    *ret_count = (uint32_t)count;
    return 0;
}

static int read_options(struct reader *r, const config_setting_t *root)
{
    static const char *const names[] = {
        "slots", "ring_size", "window", "lease_ms", "resolve_ms", "verdict_s", NULL};
    const config_setting_t *group = config_setting_get_member(root, "options");
    struct txn_config *config = r->config;
    uint64_t slots = 0, window = 0, lease = 1000, resolve = 500, verdict = 86400;
    int rc = 0;

    if (group != NULL) {
        r->lines.options = line_of(group);
        if (!config_setting_is_group(group))
            return txn_config_fail(
                config, line_of(group), "options: must be a group: { slots = 64; ... };");
        rc = check_names(r, group, "options.", names);
        if (rc == 0)
            rc = read_number(
                r, group, "options.", "slots", (struct range){2, PM_SLOT_COUNT_MAX}, &slots);
        if (rc == 0)
            rc = read_size(r, group, "options.", "ring_size", &config->geometry.ring_size);
        if (rc == 0)
            rc = read_number(r, group, "options.", "window", (struct range){4, 65536}, &window);
        if (rc == 0)
            rc = read_number(r, group, "options.", "lease_ms", (struct range){1, 600000}, &lease);
        if (rc == 0)
            rc = read_number(
                r, group, "options.", "resolve_ms", (struct range){1, 600000}, &resolve);
        if (rc == 0)
            rc = read_number(
                r, group, "options.", "verdict_s", (struct range){0, 366 * 86400}, &verdict);
    }
    config->geometry.slot_count = (uint32_t)slots;
    config->geometry.window = (uint32_t)window;
    config->lease_ms = (uint32_t)lease;
    config->resolve_ms = (uint32_t)resolve;
    config->verdict_s = (uint32_t)verdict;
    return rc;
}

/* The group `name`, with its names checked. *ret_group NULL: it is not there. */
static int open_group(struct reader *r, const config_setting_t *root, const char *name,
    const char *const *names, const config_setting_t **ret_group)
{
    const config_setting_t *group = config_setting_get_member(root, name);
    char where[32];

    *ret_group = group;
    if (group == NULL)
        return 0;
    if (!config_setting_is_group(group))
        return txn_config_fail(r->config, line_of(group),
            "%s: must be a group: { %s = ...; };", name, names[0]);
    (void)snprintf(where, sizeof(where), "%s.", name);
    return check_names(r, group, where, names);
}

static int read_fabric_options(struct reader *r, const config_setting_t *root)
{
    static const char *const names[] = {"device", "queue_pairs", "atomics", "heartbeat_ms",
        "model_rtt_us", "model_gbps", "write_back", NULL};
    static const struct choice atomics[] = {{"nic", 0}, {"message", 1}, {NULL, 0}};
    static const struct choice write_backs[] = {{"needed", 0}, {"always", 1}, {NULL, 0}};
    static const char where[] = "fabric_options.";
    struct rd_fabric_config *f = &r->config->fabric_config;
    const config_setting_t *group;
    uint64_t queue_pairs = 0, heartbeat = 0; /* 0: the fabric's default */
    uint64_t rtt = 0, gbps = 0;              /* 0: none */
    int message = 0, write_back = 0;
    int rc = open_group(r, root, "fabric_options", names, &group);

    if (rc != 0 || group == NULL)
        return rc;
    if (config_setting_get_member(group, "device") != NULL)
        rc = read_string(
            r, group, where, "device", "an RDMA device's name", f->device, sizeof(f->device));
    if (rc == 0)
        rc = read_number(
            r, group, where, "queue_pairs", (struct range){1, TXN_QUEUE_PAIRS_MAX}, &queue_pairs);
    if (rc == 0)
        rc = read_choice(r, group, where, "atomics", atomics, &message);
    if (rc == 0)
        rc = read_number(r, group, where, "heartbeat_ms",
            (struct range){TXN_HEARTBEAT_MS_MIN, TXN_HEARTBEAT_MS_MAX}, &heartbeat);
    if (rc == 0)
        rc = read_number(
            r, group, where, "model_rtt_us", (struct range){0, TXN_MODEL_RTT_US_MAX}, &rtt);
    if (rc == 0)
        rc = read_number(
            r, group, where, "model_gbps", (struct range){0, TXN_MODEL_GBPS_MAX}, &gbps);
    if (rc == 0)
        rc = read_choice(r, group, where, "write_back", write_backs, &write_back);
    f->model_rtt_ns = (uint32_t)rtt * 1000;
    f->model_mbps = (uint32_t)gbps * 1000;
    f->write_back = write_back != 0;
    f->queue_pairs = (uint32_t)queue_pairs;
    f->message_atomics = message != 0;
    f->heartbeat_ms = (uint32_t)heartbeat;
    return rc;
}

static int read_completion(struct reader *r, const config_setting_t *root)
{
    static const char *const names[] = {"mode", "threshold", "spins", "linger_us", NULL};
    static const struct choice modes[] = {{"adaptive", CN_PACE_ADAPTIVE}, {"poll", CN_PACE_POLL},
        {"event", CN_PACE_EVENT}, {NULL, 0}};
    static const struct cn_pace defaults = CN_PACE_DEFAULT;
    static const char where[] = "completion.";
    struct cn_pace *pace = &r->config->pace;
    const config_setting_t *group;
    uint64_t spins = defaults.spins, linger = defaults.linger_us;
    int mode = (int)defaults.mode;
    int rc = open_group(r, root, "completion", names, &group);

    *pace = defaults;
    if (rc != 0 || group == NULL)
        return rc;
    rc = read_choice(r, group, where, "mode", modes, &mode);
    if (rc == 0)
        rc = read_part(r, group, where, "threshold", &pace->threshold);
    if (rc == 0)
        rc = read_number(r, group, where, "spins", (struct range){0, TXN_SPINS_MAX}, &spins);
    if (rc == 0)
        rc = read_number(
            r, group, where, "linger_us", (struct range){1, TXN_LINGER_US_MAX}, &linger);
    pace->mode = (enum cn_pace_mode)mode;
    pace->spins = (uint32_t)spins;
    pace->linger_us = (uint32_t)linger;
    return rc;
}

static int read_root(struct reader *r, const config_setting_t *root)
{
    static const char *const names[] = {
        "cluster", "fabric", "nodes", "tables", "options", "fabric_options", "completion", NULL};
    struct txn_config *config = r->config;
    const config_setting_t *s;
    char text[64];
    int rc;

    rc = check_names(r, root, "", names);
    if (rc == 0)
        rc = read_string(r, root, "", "cluster", "the cluster's uuid", text, sizeof(text));
    if (rc != 0)
        return rc;
    s = config_setting_get_member(root, "cluster");
    r->lines.cluster = line_of(s);
    if (!cn_uuid_parse(text, &config->cluster))
        return txn_config_fail(config, line_of(s),
            "cluster: \"%s\" is not a uuid (8-4-4-4-12 hex digits); `cairn init` makes one", text);
    s = config_setting_get_member(root, "fabric");
    r->lines.fabric = s == NULL ? 0 : line_of(s);
    (void)snprintf(config->fabric, sizeof(config->fabric), "emu");
    if (s != NULL)
        rc = read_string(
            r, root, "", "fabric", "a fabric's name", config->fabric, sizeof(config->fabric));
    if (rc == 0)
        rc = read_options(r, root);
    if (rc == 0)
        rc = read_fabric_options(r, root);
    if (rc == 0)
        rc = read_completion(r, root);
    if (rc == 0)
        rc = read_list(r, root, "nodes", CAIRN_NODES_MAX, read_node, &config->node_count);
    if (rc == 0)
        rc = read_list(r, root, "tables", CAIRN_TABLES_MAX, read_table, &config->table_count);
    return rc;
}

static int read_stream(struct reader *r, FILE *file)
{
    config_t parsed;
    int rc;

    config_init(&parsed);
    config_set_include_dir(&parsed, r->folder);
    if (config_read(&parsed, file) == CONFIG_TRUE) {
        rc = read_root(r, config_root_setting(&parsed));
        if (rc == 0)
            rc = txn_config_check_at(r->config, &r->lines);
    } else {
        rc = txn_config_fail(r->config, config_error_line(&parsed),
            "%s; a setting looks like `name = value;`", config_error_text(&parsed));
    }
    config_destroy(&parsed);
    return rc;
}

static int open_file(const char *path, FILE **ret_file)
{
    FILE *file = fopen(path, "re");
    struct stat st;

    if (file == NULL) {
        int rc = -errno;
        return cn_fail(rc, "%s: cannot read the configuration: %s", path, strerror(-rc));
    }
    if (fstat(fileno(file), &st) == 0 && S_ISDIR(st.st_mode)) {
        (void)fclose(file);
        return cn_fail(-EISDIR, "%s: is a folder, not a configuration file", path);
    }
    *ret_file = file;
    return 0;
}

static int find_folder(struct reader *r, const char *path)
{
    char copy[PATH_MAX];

    (void)snprintf(copy, sizeof(copy), "%s", path);
    if (realpath(dirname(copy), r->folder) == NULL) {
        int rc = -errno;
        return cn_fail(rc, "%s: cannot find its folder: %s", path, strerror(-rc));
    }
    return 0;
}

int txn_config_load(const char *path, struct txn_config **ret_config)
{
    struct reader *r;
    FILE *file = NULL;
    int rc;

    if (strlen(path) >= sizeof(r->config->path))
        return cn_fail(-ENAMETOOLONG, "%.40s...: the path is too long", path);
    rc = open_file(path, &file);
    if (rc != 0)
        return rc;
    r = calloc(1, sizeof(*r));
    struct txn_config *config = calloc(1, sizeof(*config));
    if (r == NULL || config == NULL) {
        rc = cn_fail(-ENOMEM, "%s: out of memory", path);
    } else {
        r->config = config;
        memcpy(config->path, path, strlen(path) + 1);
        config->view = 1;
        rc = find_folder(r, path);
        if (rc == 0)
            rc = read_stream(r, file);
    }
    (void)fclose(file);
    free(r);
    if (rc != 0) {
        free(config);
        return rc;
    }
    *ret_config = config;
    return 0;
}
