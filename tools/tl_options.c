/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_options.c: the options of a subcommand from one table: parsing with getopt_long, and the help
 * made of the same table, so that the two cannot differ.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>

#include "tools/tl.h"

#define OPTIONS_MAX 48

#define HELP_LEFT 20
#define HELP_WIDTH 100

/* "  --name ARG           help", lines broken at spaces; a long name has a line of its own. */
static void print_option(const char *left, const char *help)
{
    bool apart = strlen(left) > HELP_LEFT;

    printf("  %-*s%s", HELP_LEFT, left, apart ? "\n" : " ");
    for (bool again = apart;; again = true) {
        size_t room = HELP_WIDTH - HELP_LEFT - 3, n = strlen(help);
        if (n > room)
            for (n = room; n > 1 && help[n] != ' ';)
                n--;
        printf("%*s%.*s\n", again ? HELP_LEFT + 3 : 0, "", (int)n, help);
        help += n;
        if (*help == '\0')
            return;
        help += *help == ' ';
    }
}

static void print_help(const struct tl_command *self, const struct tl_option *options)
{
    printf("Usage: cairn %s%s%s\n\n%s\n\nOptions:\n", self->name, self->args[0] == '\0' ? "" : " ",
        self->args, self->summary);
    for (const struct tl_option *o = options; o->name != NULL; o++) {
        char left[64];
        if (o->help == NULL)
            continue;
        (void)snprintf(left, sizeof(left), "--%s%s%s", o->name, o->arg == NULL ? "" : " ",
            o->arg == NULL ? "" : o->arg);
        print_option(left, o->help);
    }
    print_option("--help", "this text");
    printf("\nExample:\n%s\nExit: 0 good, 1 the answer is bad, 2 wrong usage or environment.\n",
        self->example);
}

static int usage_error(const struct tl_command *self, const char *what)
{
    return tl_error(self, "%s\nUsage: cairn %s %s\nTry `cairn %s --help`.", what, self->name,
        self->args, self->name);
}

static int take_number(const struct tl_command *self, const struct tl_option *o, const char *text)
{
    char what[160], *end;

    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < o->min ||
        value > o->max) {
        (void)snprintf(what, sizeof(what),
            "--%s: must be a number from %" PRIu64 " to %" PRIu64 ", not \"%.40s\"", o->name,
            o->min, o->max, text);
        return usage_error(self, what);
    }
    *o->number = value;
    return -1;
}

static int take(const struct tl_command *self, const struct tl_option *o, const char *text)
{
    if (o->flag != NULL)
        *o->flag = true;
    else if (o->text != NULL)
        *o->text = text;
    else
        return take_number(self, o, text);
    return -1;
}

static int check_count(const struct tl_command *self, int count, int args_min, int args_max)
{
    if (count < args_min)
        return usage_error(self, "an argument is missing");
    if (count > args_max)
        return usage_error(self, "too many arguments");
    return -1;
}

int tl_parse(const struct tl_command *self, const struct tl_option *options, int argc, char **argv,
    int args_min, int args_max, int *ret_first)
{
    struct option longs[OPTIONS_MAX + 2] = {{0}};
    int count = 0, c;
    char what[160];

    for (; options[count].name != NULL; count++) {
        CAIRN_ASSERT(count < OPTIONS_MAX);
        longs[count] = (struct option){options[count].name,
            options[count].arg == NULL ? no_argument : required_argument, NULL, 256 + count};
    }
    longs[count] = (struct option){"help", no_argument, NULL, 'h'};
    optind = 0;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
        int rc = -1;
        if (c == 'h') {
            print_help(self, options);
            return TL_OK;
        }
        if (c == ':') {
            (void)snprintf(what, sizeof(what), "%.60s: needs a value", argv[optind - 1]);
            return usage_error(self, what);
        }
        if (c == '?') {
            (void)snprintf(what, sizeof(what), "%.60s: no such option%s", argv[optind - 1],
                args_max > 0 ? " (put -- before an argument that begins with -)" : "");
            return usage_error(self, what);
        }
        rc = take(self, &options[c - 256], optarg);
        if (rc != -1)
            return rc;
    }
    *ret_first = optind;
    return check_count(self, argc - optind, args_min, args_max);
}
