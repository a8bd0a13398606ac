/* SPDX-License-Identifier: BSD-3-Clause */
/* cr_scripts_internal.h: between the files of the scripts. */
#ifndef CR_SCRIPTS_INTERNAL_H
#define CR_SCRIPTS_INTERNAL_H

#include "tools/crash/campaign/cr_scripts.h"

#define CR_SCRIPT_TABLE 1u

/* Until it is committed; false: it never is. */
bool cr_script_put(struct cr_client *client, const char *key, const void *value, size_t size);
/* What the get returns. */
int cr_script_get(struct cairn_tx *tx, const char *key, bool lock);

#endif
