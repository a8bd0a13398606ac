/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Target: tapes of crash runs (cr_tape_file.c) and the shape of a run as text (cr_setup_text.c).
 * Input: flags (1), then the text. Flag 1: the checksum in the last line is mended; flag 2: the
 * text is a setup only; flag 4: a list of faults; flag 8: at the beginning of a page.
 * Oracle: every choice that was read is below its bound and has a plain label; a setup that was
 * read is printed and read again to the same text.
 */
#include <errno.h>

#include "tools/crash/tell/cr_tape_file.h"

#include "tests/fuzz/fz_common.h"

#define TEXT_MAX 65536u

static void mend(char *text, size_t size)
{
    char line[16];

    for (size_t at = size; at-- > 0;) {
        if (size - at < 13 || (at > 0 && text[at - 1] != '\n') || memcmp(text + at, "end ", 4) != 0)
            continue;
        (void)snprintf(line, sizeof(line), "%08x", cn_crc32c(0, text, at));
        memcpy(text + at + 4, line, 8);
        return;
    }
}

static void try_setup(const char *text)
{
    struct cr_setup setup, again;
    char printed[CR_SETUP_TEXT_MAX], twice[CR_SETUP_TEXT_MAX];

    memset(&setup, 0, sizeof(setup));
    memset(&again, 0, sizeof(again));
    if (cr_setup_parse(text, &setup) != 0)
        return;
    (void)cr_setup_print(&setup, printed);
    FZ_NEED(cr_setup_parse(printed, &again) == 0, "\"%s\" is not read again: %s", printed,
        cairn_last_error());
    FZ_NEED(strcmp(cr_setup_print(&again, twice), printed) == 0, "\"%s\" became \"%s\"", printed,
        twice);
    FZ_NEED(cr_mode_name(&setup) != NULL, "mode");
}

static void try_tape(const char *text, size_t size)
{
    struct cr_tape_file tape;
    int rc;

    memset(&tape, 0, sizeof(tape));
    rc = cr_tape_parse("fuzz", text, size, &tape);
    FZ_NEED(rc == 0 || rc == -EINVAL || rc == -EBADMSG || rc == CAIRN_E_WIRE_VERSION, "error %d",
        rc);
    if (rc != 0)
        return;
    FZ_NEED(tape.count <= size / 10 && tape.label_count <= CR_TAPE_LABELS_MAX, "counts");
    for (size_t i = 0; i < tape.count; i++) {
        const struct sim_choice *c = &tape.choice[i];
        size_t n = strlen(c->label);

        FZ_NEED(c->value < c->bound && n > 0 && n <= CR_TAPE_LABEL_MAX, "choice %zu", i);
        for (size_t k = 0; k < n; k++)
            FZ_NEED(c->label[k] >= ' ' && c->label[k] <= '~', "label of choice %zu", i);
    }
    try_setup(tape.setup);
    cr_tape_release(&tape);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fz_input in = {data, size};
    uint8_t flags = fz_u8(&in);
    unsigned faults = 0;
    char *text;

    size = cn_min64(in.left, TEXT_MAX);
    text = (flags & 8) != 0 ? fz_guard_begin(0, NULL, size + 1) : fz_guard_end(0, NULL, size + 1);
    if (size > 0)
        memcpy(text, in.at, size);
    if ((flags & 2) != 0) {
        try_setup(text);
    } else if ((flags & 4) != 0) {
        if (cr_faults_parse(text, 5, &faults) == 0)
            FZ_NEED((faults & ~(unsigned)CR_FAULTS_KNOWN) == 0, "faults %#x", faults);
    } else {
        if ((flags & 1) != 0)
            mend(text, size);
        text = (flags & 8) != 0 ? text : memmove(text + 1, text, size); /* no zero behind it */
        try_tape(text, size);
    }
    return 0;
}
