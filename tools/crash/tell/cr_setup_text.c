/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_setup_text.c: one table of the fields of struct cr_setup, read and written; tables of names.
 */
#include "tools/crash/tell/cr_setup_text.h"

#include <errno.h>
#include <stdarg.h>

#define VALUE_MAX 96u
#define ROOM 512u

/* ---- lists of names ---- */

struct name { const char *name; unsigned bit; };

static const struct name fault_names[] = {{"process", CR_FAULT_NODE_PROCESS},
    {"power", CR_FAULT_NODE_POWER}, {"client", CR_FAULT_CLIENT}, {"pause", CR_FAULT_PAUSE},
    {"partition", CR_FAULT_PARTITION}, {"break", CR_FAULT_BREAK}, {"all-power", CR_FAULT_ALL_POWER},
    {"nested", CR_FAULT_NESTED}, {"step", CR_FAULT_STEP}, {"hazard", CR_FAULT_HAZARD},
    {"clock", CR_FAULT_CLOCK}, {"slow", CR_FAULT_SLOW},
    {"memory", CR_FAULT_MEMORY}, {"stall", CR_FAULT_STALL}, {NULL, 0}};
static const struct mode {
    const char *name;
    enum rd_durability durability;
    enum sim_mode mode;
} modes[] = {{"mixed", 0, SIM_ADR}, {"adr", RD_DURABILITY_APM, SIM_ADR},
    {"adr_gpspm", RD_DURABILITY_GPSPM, SIM_ADR}, {"adr_ddio", RD_DURABILITY_GPSPM, SIM_ADR_DDIO},
    {"eadr", RD_DURABILITY_EADR, SIM_EADR}, {"adr_ddio_apm", RD_DURABILITY_APM, SIM_ADR_DDIO}};

static void append(char *text, size_t room, const char *format, ...) CN_PRINTF(3, 4);
static void append(char *text, size_t room, const char *format, ...)
{
    size_t at = strlen(text);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text + at, room - at, format, args);
    va_end(args);
}

static bool is_safe(const char *text)
{
    return text[0] != '\0' && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                           "0123456789_-+=./:,") == strlen(text);
}

void cr_word_append(char *text, size_t size, const char *word)
{
    if (is_safe(word)) {
        append(text, size, " %s", word);
        return;
    }
    append(text, size, " '");
    for (; *word != '\0'; word++)
        append(text, size, "%s%c", *word == '\'' ? "'\\'" : "", *word);
    append(text, size, "'");
}

static int no_such(const char *what, const char *word, const struct name *names)
{
    char all[256] = "";

    for (; names->name != NULL; names++)
        append(all, sizeof(all), " %s", names->name);
    return cn_fail(-EINVAL, "no %s \"%.40s\"; there are:%s", what, word, all);
}

static const struct name *find(const struct name *names, const char *word)
{
    for (; names->name != NULL; names++)
        if (strcmp(names->name, word) == 0)
            return names;
    return NULL;
}

/* Nothing, or nothing behind the last separator. */
static bool is_open(const char *text, char separator)
{
    size_t n = strlen(text);

    return n == 0 || text[n - 1] == separator;
}

/* The next word of a list separated by , or +; false at its end. */
static bool take_word(const char **at, const char *separators, char word[VALUE_MAX])
{
    size_t n = strcspn(*at, separators);

    if (**at == '\0')
        return false;
    (void)snprintf(word, VALUE_MAX, "%.*s", n < VALUE_MAX ? (int)n : (int)VALUE_MAX - 1, *at);
    *at += n + ((*at)[n] != '\0');
    return true;
}

static int parse_bits(
    const char *what, const char *text, const struct name *names, unsigned *ret_bits)
{
    char word[VALUE_MAX];
    unsigned bits = 0;

    if (is_open(text, '+'))
        return cn_fail(-EINVAL, "a %s is missing", what);
    while (take_word(&text, "+", word)) {
        const struct name *n = find(names, word);
        if (n == NULL)
            return no_such(what, word, names);
        bits |= n->bit;
    }
    *ret_bits = bits;
    return 0;
}

static void print_bits(unsigned bits, const struct name *names, char text[ROOM])
{
    text[0] = '\0';
    for (; names->name != NULL; names++)
        if ((bits & names->bit) != 0)
            append(text, ROOM, "%s%s", text[0] == '\0' ? "" : "+", names->name);
}

int cr_faults_parse(const char *text, unsigned base, unsigned *ret_faults)
{
    unsigned faults = text[0] == '+' || text[0] == '-' ? base : 0;
    char word[VALUE_MAX];

    while (take_word(&text, ",", word)) {
        bool drop = word[0] == '-';
        const char *name = word + (drop || word[0] == '+');
        const struct name *n = find(fault_names, name);
        unsigned bits = strcmp(name, "all") == 0 ? CR_FAULTS_ALL : n != NULL ? n->bit : 0;
        if (bits == 0 && strcmp(name, "none") != 0)
            return no_such("fault", name, fault_names);
        faults = drop ? faults & ~bits : faults | bits;
    }
    *ret_faults = faults;
    return 0;
}

/* ---- workloads that are built in ---- */

static bool parse_work(const char *text, unsigned *ret_work)
{
    char word[VALUE_MAX];
    unsigned work = 0;

    if (is_open(text, '+'))
        return false;
    while (take_word(&text, "+", word)) {
        const struct cairn_workload *w = cr_work_find(word);
        uint32_t i = 0;
        while (w != NULL && cr_work_at(i) != w)
            i++;
        if (w == NULL)
            return false;
        work |= 1u << i;
    }
    *ret_work = work;
    return true;
}

static void print_work(unsigned work, char text[ROOM])
{
    text[0] = '\0';
    for (uint32_t i = 0; cr_work_at(i) != NULL; i++)
        if ((work >> i & 1) != 0)
            append(text, ROOM, "%s%s", text[0] == '\0' ? "" : "+", cr_work_at(i)->name);
}

int cr_mode_parse(const char *text, struct cr_setup *setup)
{
    char all[128] = "";

    for (size_t i = 0; i < CN_ARRAY_SIZE(modes); i++) {
        append(all, sizeof(all), " %s", modes[i].name);
        if (strcmp(modes[i].name, text) != 0)
            continue;
        setup->durability = modes[i].durability;
        setup->mode = modes[i].mode;
        return 0;
    }
    return cn_fail(-EINVAL, "no mode \"%.40s\"; there are:%s", text, all);
}

const char *cr_mode_name(const struct cr_setup *setup)
{
    for (size_t i = 0; i < CN_ARRAY_SIZE(modes); i++)
        if (setup->durability == modes[i].durability &&
            (setup->durability == 0 || setup->mode == modes[i].mode))
            return modes[i].name;
    return "other";
}

int cr_step_parse(const char *text, enum cn_step *ret_step)
{
    for (uint32_t i = 0; i < CN_STEP_COUNT; i++)
        if (strcmp(cn_step_name(i), text) == 0) {
            *ret_step = i;
            return 0;
        }
    return cn_fail(-EINVAL, "no step \"%.40s\"; `cairn crash points` lists them", text);
}

/* ---- fields ---- */

enum kind { NUMBER, FLAG, FAULTS, WORK, DURABILITY, PLATFORM, PLAN, HAZARD, SKIP };

#define FIELD(name, kind, field, max) {name, kind, offsetof(struct cr_setup, field), max}
static const struct field {
    const char *name;
    enum kind kind;
    size_t off;
    uint32_t max;
} fields[] = {
    FIELD("nodes", NUMBER, nodes, CR_NODES_MAX),
    FIELD("clients", NUMBER, clients, CR_CLIENTS_MAX),
    FIELD("group", NUMBER, group, CR_CLIENTS_MAX),
    FIELD("ops", NUMBER, ops, 100000),
    FIELD("faults", FAULTS, faults, 0),
    FIELD("work", WORK, work, 0),
    FIELD("durability", DURABILITY, durability, 0),
    FIELD("platform", PLATFORM, mode, 0),
    FIELD("lanes", NUMBER, lanes, SIM_LANES_MAX),
    FIELD("message-atomics", FLAG, message_atomics, 0),
    FIELD("prompt", FLAG, prompt, 0),
    FIELD("plan", PLAN, plan, 0),
    FIELD("first", PLAN, first, 0),
    FIELD("hazard-node", HAZARD, hazard[SIM_NODE], 0),
    FIELD("hazard-client", HAZARD, hazard[SIM_CLIENT], 0),
    FIELD("quick", FLAG, quick, 0),
    FIELD("plain", FLAG, plain, 0),
    FIELD("garbage", FLAG, garbage, 0),
    FIELD("chunks", NUMBER, chunks, 4096),
    FIELD("power-at-end", FLAG, power_at_end, 0),
    FIELD("clean-end", FLAG, clean_end, 0),
    FIELD("discipline", FLAG, discipline, 0),
    FIELD("rules", FLAG, rules, 0),
    FIELD("skip", SKIP, skip, 0),
};

static const char *const durability_names[] = {"none", "emulated", "apm", "gpspm", "eadr"};
static const char *const platform_names[] = {"adr", "adr_ddio", "eadr"};
static const char *const role_names[] = {"node", "client", "other"};
static const char *const crash_names[] = {"pause", "process", "power"};

static void print_plan(const struct sim_plan *p, char value[ROOM])
{
    if (p->occurrence == 0)
        return;
    append(value, ROOM, "%s:%s:%u:%s", role_names[p->role], cn_step_name(p->step), p->occurrence,
        crash_names[p->kind]);
    if (!p->any_actor || p->pause_us != 0)
        append(value, ROOM, ":%u", p->pause_us);
    if (!p->any_actor)
        append(value, ROOM, ":%u", p->actor);
}

/* Operations left out: a mask for each client, up to the last that leaves any out. */
static void print_skip(const uint64_t skip[CR_CLIENTS_MAX], char value[ROOM])
{
    uint32_t count = CR_CLIENTS_MAX;

    while (count > 0 && skip[count - 1] == 0)
        count--;
    for (uint32_t i = 0; i < count; i++)
        append(value, ROOM, "%s%lx", i == 0 ? "" : ":", skip[i]);
}

static void print_field(const struct cr_setup *setup, const struct field *f, char value[ROOM])
{
    const void *at = (const char *)setup + f->off;
    const struct sim_hazard *h = at;

    value[0] = '\0';
    switch (f->kind) {
    case NUMBER:
        if (*(const uint32_t *)at != 0)
            append(value, ROOM, "%u", *(const uint32_t *)at);
        break;
    case FLAG:
        append(value, ROOM, "%s", *(const bool *)at ? "1" : "");
        break;
    case FAULTS:
        if (*(const unsigned *)at == CR_FAULTS_ALL)
            append(value, ROOM, "all");
        else
            print_bits(*(const unsigned *)at, fault_names, value);
        break;
    case WORK: print_work(*(const unsigned *)at, value); break;
    case DURABILITY:
        if (setup->durability != 0)
            append(value, ROOM, "%s", durability_names[setup->durability]);
        break;
    case PLATFORM:
        if (setup->durability != 0)
            append(value, ROOM, "%s", platform_names[setup->mode]);
        break;
    case PLAN: print_plan(at, value); break;
    case HAZARD:
        if (h->process != 0 || h->power != 0 || h->pause != 0 || h->store != 0)
            append(value, ROOM, "%u:%u:%u:%u:%u", h->process, h->power, h->pause, h->pause_us,
                h->store);
        break;
    case SKIP: print_skip(setup->skip, value); break;
    }
}

const char *cr_setup_print(const struct cr_setup *setup, char text[CR_SETUP_TEXT_MAX])
{
    char value[ROOM];

    text[0] = '\0';
    for (size_t i = 0; i < CN_ARRAY_SIZE(fields); i++) {
        print_field(setup, &fields[i], value);
        if (value[0] != '\0')
            append(text, CR_SETUP_TEXT_MAX, "%s%s=%s", text[0] == '\0' ? "" : " ", fields[i].name,
                value);
    }
    return text;
}

static bool take_number(const char *text, uint32_t max, uint32_t *ret_number)
{
    char *end;

    errno = 0;
    unsigned long v = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || v > max)
        return false;
    *ret_number = (uint32_t)v;
    return true;
}

static bool take_name(
    const char *text, const char *const *names, uint32_t count, uint32_t *ret_index)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(names[i], text) == 0) {
            *ret_index = i;
            return true;
        }
    return false;
}

static bool parse_plan(const char *value, struct sim_plan *ret_plan)
{
    char word[6][VALUE_MAX] = {{0}};
    struct sim_plan p = {.any_actor = true};
    uint32_t n = 0, role, kind;

    while (n < 6 && take_word(&value, ":", word[n]))
        n++;
    if (n < 4 || *value != '\0' || !take_name(word[0], role_names, 3, &role) ||
        cr_step_parse(word[1], &p.step) != 0 || !take_number(word[2], 1000000, &p.occurrence) ||
        !take_name(word[3], crash_names, 3, &kind) ||
        (n > 4 && !take_number(word[4], 10000000, &p.pause_us)) ||
        (n > 5 && !take_number(word[5], SIM_ACTORS_MAX - 1, &p.actor)))
        return false;
    p.any_actor = n < 6;
    p.role = role;
    p.kind = kind;
    *ret_plan = p;
    return true;
}

static bool parse_hazard(const char *value, struct sim_hazard *ret_hazard)
{
    uint32_t v[5];
    char word[VALUE_MAX];

    for (uint32_t i = 0; i < 5; i++)
        if (!take_word(&value, ":", word) || !take_number(word, 100000000, &v[i]))
            return false;
    if (*value != '\0' || (v[2] != 0 && v[3] == 0))
        return false;
    *ret_hazard = (struct sim_hazard){.process = v[0], .power = v[1], .pause = v[2],
        .pause_us = v[3], .store = v[4]};
    return true;
}

static bool parse_skip(const char *value, uint64_t ret_skip[CR_CLIENTS_MAX])
{
    char word[VALUE_MAX];
    uint32_t i = 0;

    for (; i < CR_CLIENTS_MAX && take_word(&value, ":", word); i++) {
        if (word[0] == '\0' || strlen(word) > 16 ||
            strspn(word, "0123456789abcdef") != strlen(word))
            return false;
        ret_skip[i] = strtoull(word, NULL, 16);
    }
    return i > 0 && *value == '\0';
}

static bool parse_field(struct cr_setup *setup, const struct field *f, const char *value)
{
    void *at = (char *)setup + f->off;
    uint32_t n;

    switch (f->kind) {
    case NUMBER: return take_number(value, f->max, at);
    case FLAG:
        *(bool *)at = strcmp(value, "1") == 0;
        return *(bool *)at;
    case FAULTS:
        if (strcmp(value, "all") == 0) {
            *(unsigned *)at = CR_FAULTS_ALL;
            return true;
        }
        return parse_bits("fault", value, fault_names, at) == 0;
    case WORK: return parse_work(value, at);
    case DURABILITY:
        if (!take_name(value, durability_names, CN_ARRAY_SIZE(durability_names), &n))
            return false;
        setup->durability = n;
        return true;
    case PLATFORM:
        if (!take_name(value, platform_names, CN_ARRAY_SIZE(platform_names), &n))
            return false;
        setup->mode = n;
        return true;
    case PLAN: return parse_plan(value, at);
    case HAZARD: return parse_hazard(value, at);
    case SKIP: return parse_skip(value, at);
    }
    return false;
}

int cr_setup_parse(const char *text, struct cr_setup *ret_setup)
{
    struct cr_setup setup = {0};
    char word[ROOM];

    while (*text != '\0') {
        size_t n = strcspn(text, " "), i = 0;
        if (n >= sizeof(word))
            return cn_fail(-EINVAL, "set-up: a word of %zu characters", n);
        memcpy(word, text, n);
        word[n] = '\0';
        text += n + (text[n] == ' ');
        char *value = strchr(word, '=');
        if (value == NULL)
            return cn_fail(-EINVAL, "set-up: \"%.60s\" is not NAME=VALUE", word);
        *value++ = '\0';
        while (i < CN_ARRAY_SIZE(fields) && strcmp(fields[i].name, word) != 0)
            i++;
        if (i == CN_ARRAY_SIZE(fields))
            return cn_fail(-EINVAL, "set-up: no field \"%.40s\"", word);
        if (!parse_field(&setup, &fields[i], value))
            return cn_fail(-EINVAL, "set-up: bad value in %.40s=%.60s", word, value);
    }
    *ret_setup = setup;
    return 0;
}
