/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_signal.c: Ctrl-C and SIGTERM end what a subcommand does in an orderly way.
 */
#include "tools/tl.h"

#include <signal.h>

volatile int tl_interrupted;

static void handle_interrupt(int signal_number)
{
    (void)signal_number;
    tl_interrupted = 1;
}

void tl_catch_signals(void)
{
    struct sigaction action = {.sa_handler = handle_interrupt};

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}
