// Simulates a hanging file system with LD_PRELOAD. Calls that open or sync a file never return if its path contains the value in HANG.
// HANG_ON selects the call: open or sync.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void hang_if(const char *call, const char *path) {
    const char *word = getenv("HANG"), *on = getenv("HANG_ON");
    if (word && on && strcmp(on, call) == 0 && strstr(path, word))
        for (;;) pause();
}

int open64(const char *path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    hang_if("open", path);
    return real(path, flags, mode);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        hang_if("sync", path);
    }
    return real(file);
}
