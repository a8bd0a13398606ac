/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ts_folder.h: a test's folder of pools, in shared memory: gone when the test is, however it ends.
 */
#ifndef TS_FOLDER_H
#define TS_FOLDER_H

/* Make a folder from a mkdtemp() pattern in `dir`. When this process has ended, by SIGKILL too, the
 * folder is removed with all that is in it. Ends the process when it cannot be made. */
void ts_folder_make(char *dir);

#endif
