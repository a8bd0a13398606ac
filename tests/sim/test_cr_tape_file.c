/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a tape that is written and read is the same run; a tape that was changed, cut or made by a
 * liar is refused with an error that says where, and never crashes the reader. The same for the
 * text of a set-up.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "tools/crash/campaign/cr_points.h"
#include "tools/crash/tell/cr_tape_file.h"

static const struct sim_choice choices[] = {{.label = "nodes", .value = 1, .bound = 2},
    {.label = "delay", .value = 1048575, .bound = 1048576, .who = 65537, .nth = 3},
    {.label = "nodes", .value = 0, .bound = 4294967295u, .who = 4294967295u, .nth = 9}};

static char path[256];

static struct cr_tape_file sample(void)
{
    struct cr_tape_file tape = {.build = "0123456789abcdef", .mutant = "none",
        .workload = "mixed", .seed = UINT64_MAX, .setup = "nodes=2 ops=20",
        .failure = "lost: element 3", .calm_rest = true, .choice = choices, .count = 3};

    return tape;
}

/* The sample as text. Owner: the caller. */
static char *sample_text(size_t *ret_size)
{
    struct cr_tape_file tape = sample();
    char *text = calloc(1, 4096);

    assert_int_equal(0, cr_tape_write(path, &tape));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    *ret_size = fread(text, 1, 4095, f);
    fclose(f);
    return text;
}

/* The checksum made right again. */
static size_t mend(char *text, size_t size)
{
    char *end = strstr(text, "end ");

    if (end == NULL)
        return size;
    return (size_t)(end - text) +
        (size_t)sprintf(end, "end %08x\n", cn_crc32c(0, text, (size_t)(end - text)));
}

static int parse(const char *text, size_t size)
{
    struct cr_tape_file tape;
    char *copy = malloc(size); /* exactly: reading beyond is seen by sanitizers */
    memcpy(copy, text, size);
    int rc = cr_tape_parse("t", copy, size, &tape);

    if (rc == 0)
        cr_tape_release(&tape);
    free(copy);
    return rc;
}

/* `from` replaced by `to`, with the right checksum. */
static int parse_with(const char *from, const char *to)
{
    size_t size;
    char *text = sample_text(&size), *at = strstr(text, from), rest[4096];

    assert_non_null(at);
    snprintf(rest, sizeof(rest), "%s", at + strlen(from));
    snprintf(at, 4096 - (size_t)(at - text), "%s%s", to, rest);
    size = mend(text, strlen(text));
    int rc = parse(text, size);
    free(text);
    return rc;
}

static void read__as_written__same(void **state)
{
    (void)state;
    struct cr_tape_file tape = sample(), back;

    assert_int_equal(0, cr_tape_write(path, &tape));
    assert_int_equal(0, cr_tape_read(path, &back));
    assert_string_equal(tape.build, back.build);
    assert_string_equal(tape.mutant, back.mutant);
    assert_string_equal(tape.workload, back.workload);
    assert_string_equal(tape.setup, back.setup);
    assert_string_equal(tape.failure, back.failure);
    assert_true(back.seed == tape.seed);
    assert_true(back.calm_rest);
    assert_int_equal(3, back.count);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(choices[i].label, back.choice[i].label);
        assert_int_equal(choices[i].value, back.choice[i].value);
        assert_int_equal(choices[i].bound, back.choice[i].bound);
        assert_int_equal(choices[i].who, back.choice[i].who);
        assert_int_equal(choices[i].nth, back.choice[i].nth);
    }
    assert_ptr_equal(back.choice[0].label, back.choice[2].label); /* kept once */
    cr_tape_release(&back);
}

/* A run that goes through the file is the run that was recorded. */
static void read__recorded_run__same_run(void **state)
{
    (void)state;
    struct cr_setup setup = {.ops = 8, .faults = CR_FAULTS_ALL, .record = true};
    struct cr_result first, again;
    struct cr_tape_file tape = sample(), back;

    cr_cluster_run(&setup, 5, &first);
    tape.calm_rest = false;
    tape.choice = first.tape;
    tape.count = first.tape_count;
    assert_true(tape.count > 100);
    assert_int_equal(0, cr_tape_write(path, &tape));
    assert_int_equal(0, cr_tape_read(path, &back));
    setup.record = false;
    setup.replay = back.choice;
    setup.replay_count = back.count;
    assert_int_equal(first.choices, back.count);
    cr_cluster_run(&setup, 5, &again);
    assert_true(first.hash == again.hash);
    sim_free(first.tape);
    cr_tape_release(&back);
    sim_fiber_trim();
}

static void read__no_file__errno_kept(void **state)
{
    (void)state;
    struct cr_tape_file tape;

    assert_int_equal(-ENOENT, cr_tape_read("/nonexistent/tape", &tape));
    assert_int_equal(-EINVAL, cr_tape_read("/", &tape));
}

static void write__no_folder__errno_and_nothing_left(void **state)
{
    (void)state;
    struct cr_tape_file tape = sample();

    assert_int_equal(-ENOENT, cr_tape_write("/nonexistent/tape", &tape));
}

static void parse__cut_anywhere__refused(void **state)
{
    (void)state;
    size_t size;
    char *text = sample_text(&size);

    for (size_t n = 0; n < size; n++)
        assert_int_not_equal(0, parse(text, n));
    assert_int_equal(0, parse(text, size));
    free(text);
}

static void parse__any_byte_changed__refused(void **state)
{
    (void)state;
    size_t size;
    char *text = sample_text(&size);

    for (size_t i = 0; i < size; i++)
        for (uint32_t bit = 0; bit < 8; bit++) {
            text[i] = (char)(text[i] ^ 1 << bit);
            assert_int_not_equal(0, parse(text, size));
            text[i] = (char)(text[i] ^ 1 << bit);
        }
    free(text);
}

static void parse__changed_text__checksum_named(void **state)
{
    (void)state;
    size_t size;
    char *text = sample_text(&size);

    *strstr(text, "lost") = 'm';
    assert_int_equal(-EBADMSG, parse(text, size));
    assert_non_null(strstr(cairn_last_error(), "checksum"));
    free(text);
}

static void parse__other_version__told(void **state)
{
    (void)state;
    assert_int_equal(CAIRN_E_WIRE_VERSION, parse_with("cairn-tape 1", "cairn-tape 2"));
    assert_int_equal(-EINVAL, parse_with("cairn-tape 1", "cairn-type 1"));
}

static void parse__lies__refused(void **state)
{
    (void)state;
    static const char *const lies[][2] = {
        {"1 2 0 0 nodes", "2 2 0 0 nodes"},              /* value not below its bound */
        {"1 2 0 0 nodes", "0 0 0 0 nodes"},              /* bound 0 */
        {"1 2 0 0 nodes", "1 2 0 0 "},                   /* no label */
        {"1 2 0 0 nodes", "1 2 0 nodes"},                /* a number is missing */
        {"1 2 0 0 nodes", "1 4294967296 0 0 nodes"},     /* too large */
        {"1 2 0 0 nodes", "-1 2 0 0 nodes"},
        {"choices 3", "choices 4"},
        {"choices 3", "choices 2"},
        {"choices 3", "choices 16000000"},
        {"choices 3", "choices 99999999999999999999"},
        {"choices 3", "choices"},
        {"seed 18446744073709551615", "seed 18446744073709551616"},
        {"seed 18446744073709551615", "seed x"},
        {"rest calm", "rest wild"},
        {"build 0123456789abcdef", "build "
            "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
        {"mutant", "mutand"},
        {"failure lost", "failure \x1b[2Jlost"},         /* no control characters */
    };

    for (size_t i = 0; i < CN_ARRAY_SIZE(lies); i++)
        if (parse_with(lies[i][0], lies[i][1]) != -EINVAL)
            fail_msg("\"%s\" was taken", lies[i][1]);
    assert_int_equal(0, parse_with("lost", "last"));
}

static void parse__long_label__refused(void **state)
{
    (void)state;
    char line[128];

    snprintf(line, sizeof(line), "1 2 0 0 %064d", 0);
    assert_int_equal(-EINVAL, parse_with("1 2 0 0 nodes", line));
    snprintf(line, sizeof(line), "1 2 0 0 %063d", 0);
    assert_int_equal(0, parse_with("1 2 0 0 nodes", line));
}

static void parse__behind_the_end__refused(void **state)
{
    (void)state;
    size_t size;
    char *text = sample_text(&size);

    memcpy(text + size, "x\n", 3);
    assert_int_equal(-EINVAL, parse(text, size + 2));
    free(text);
}

/* ---- set-ups ---- */

/* Printed, parsed and printed again: the same; and the same struct. */
static void expect_same(const struct cr_setup *setup)
{
    char text[CR_SETUP_TEXT_MAX], again[CR_SETUP_TEXT_MAX];
    struct cr_setup back;

    (void)cr_setup_print(setup, text);
    if (cr_setup_parse(text, &back) != 0)
        fail_msg("\"%s\": %s", text, cairn_last_error());
    assert_string_equal(text, cr_setup_print(&back, again));
    assert_memory_equal(setup, &back, sizeof(back));
}

static void setup__all_points__same_after_parse(void **state)
{
    (void)state;
    enum cn_step step;
    enum cr_cell kind;

    for (uint32_t at = 0; cr_point_at(at, &step, &kind); at++) {
        struct cr_setup setup;
        uint64_t seed;
        cr_point_setup(step, kind, 7, 1, &setup, &seed);
        expect_same(&setup);
    }
}

static void setup__every_field__same_after_parse(void **state)
{
    (void)state;
    struct cr_setup setup;

    memset(&setup, 0, sizeof(setup));
    expect_same(&setup);
    setup.nodes = 4;
    setup.clients = 6;
    setup.ops = 77;
    setup.faults = CR_FAULTS_ALL;
    setup.work = (1u << CR_WORK_COUNT) - 1;
    setup.durability = RD_DURABILITY_GPSPM;
    setup.mode = SIM_ADR_DDIO;
    setup.lanes = 2;
    setup.message_atomics = setup.prompt = setup.quick = setup.plain = true;
    setup.power_at_end = setup.clean_end = true;
    setup.plan = (struct sim_plan){.role = SIM_CLIENT, .step = CN_STEP_c_log, .occurrence = 3,
        .kind = SIM_CRASH_NONE, .pause_us = 9, .actor = 5};
    setup.first = (struct sim_plan){.role = SIM_NODE, .any_actor = true,
        .step = CN_STEP_r_serving, .occurrence = 1, .kind = SIM_CRASH_POWER};
    setup.hazard[SIM_NODE] = (struct sim_hazard){1, 2, 3, 4, 5};
    setup.hazard[SIM_CLIENT] = (struct sim_hazard){.store = 6};
    expect_same(&setup);
}

static void setup__hostile_text__refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"nodes", "nodes=", "nodes=5", "nodes=-1", "nodes=2x",
        "nodes=99999999999", "colour=red", "quick=yes", "faults=process+flood", "work=bank+",
        "plan=node", "plan=node:c_log:1", "plan=nobody:c_log:1:power", "plan=node:c_lag:1:power",
        "plan=node:c_log:1:power:0:99", "plan=node:c_log:1:power:0:1:1", "hazard-node=1:2:3",
        "hazard-node=1:2:3:0:5", "hazard-node=1:2:3:4:5:6", "platform=none", "durability=x",
        "=", "= =", "nodes=2  ops=3"};

    for (size_t i = 0; i < CN_ARRAY_SIZE(texts); i++) {
        struct cr_setup setup = {.nodes = 3};
        if (cr_setup_parse(texts[i], &setup) != -EINVAL || setup.nodes != 3)
            fail_msg("\"%s\" was taken", texts[i]);
    }
    char *text = calloc(1, 10000);
    memset(text, 'x', 9999);
    struct cr_setup setup;
    assert_int_equal(-EINVAL, cr_setup_parse(text, &setup));
    free(text);
}

static void faults__lists__as_said(void **state)
{
    (void)state;
    unsigned f;

    assert_int_equal(0, cr_faults_parse("power,pause", CR_FAULTS_ALL, &f));
    assert_int_equal(CR_FAULT_NODE_POWER | CR_FAULT_PAUSE, f);
    assert_int_equal(0, cr_faults_parse("-power,-pause", CR_FAULTS_ALL, &f));
    assert_int_equal(CR_FAULTS_ALL & ~(unsigned)(CR_FAULT_NODE_POWER | CR_FAULT_PAUSE), f);
    assert_int_equal(0, cr_faults_parse("+power", CR_FAULT_CLIENT, &f));
    assert_int_equal(CR_FAULT_NODE_POWER | CR_FAULT_CLIENT, f);
    assert_int_equal(0, cr_faults_parse("all,-client", 0, &f));
    assert_int_equal(CR_FAULTS_ALL & ~(unsigned)CR_FAULT_CLIENT, f);
    assert_int_equal(0, cr_faults_parse("none", CR_FAULTS_ALL, &f));
    assert_int_equal(0, f);
    assert_int_equal(-EINVAL, cr_faults_parse("pause,flood", 0, &f));
    assert_non_null(strstr(cairn_last_error(), "partition"));
}

static void words__any__as_a_shell_reads_them(void **state)
{
    (void)state;
    char text[64] = "x", small[8] = "x";

    cr_word_append(text, sizeof(text), "a-b=1");
    cr_word_append(text, sizeof(text), "it's $HOME");
    cr_word_append(text, sizeof(text), "");
    assert_string_equal("x a-b=1 'it'\\''s $HOME' ''", text);
    cr_word_append(small, sizeof(small), "0123456789");
    assert_string_equal("x 01234", small);
}

static void modes__names__there_and_back(void **state)
{
    (void)state;
    static const char *const names[] = {
        "mixed", "adr", "adr_gpspm", "adr_ddio", "eadr", "adr_ddio_apm"};

    for (size_t i = 0; i < CN_ARRAY_SIZE(names); i++) {
        struct cr_setup setup = {0};
        assert_int_equal(0, cr_mode_parse(names[i], &setup));
        assert_string_equal(names[i], cr_mode_name(&setup));
    }
    struct cr_setup setup = {0};
    assert_int_equal(-EINVAL, cr_mode_parse("wsp", &setup));
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read__as_written__same),
        cmocka_unit_test(read__recorded_run__same_run),
        cmocka_unit_test(read__no_file__errno_kept),
        cmocka_unit_test(write__no_folder__errno_and_nothing_left),
        cmocka_unit_test(parse__cut_anywhere__refused),
        cmocka_unit_test(parse__any_byte_changed__refused),
        cmocka_unit_test(parse__changed_text__checksum_named),
        cmocka_unit_test(parse__other_version__told),
        cmocka_unit_test(parse__lies__refused),
        cmocka_unit_test(parse__long_label__refused),
        cmocka_unit_test(parse__behind_the_end__refused),
        cmocka_unit_test(setup__all_points__same_after_parse),
        cmocka_unit_test(setup__every_field__same_after_parse),
        cmocka_unit_test(setup__hostile_text__refused),
        cmocka_unit_test(faults__lists__as_said),
        cmocka_unit_test(words__any__as_a_shell_reads_them),
        cmocka_unit_test(modes__names__there_and_back),
    };
    char folder[] = "/tmp/cairn-tape-XXXXXX";

    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof(path), "%s/t.tape", folder);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    (void)rmdir(folder);
    return rc;
}
