/* Preloaded into a training run to imitate slow and full disks. While a control file requests it, reads below one folder and writes below
   another are delayed, or writes fail with ENOSPC. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The layout of the mapped control file: the requested faults, then counters of injected faults. tests/soak/place.rs uses the same
   layout. */
struct control {
    volatile uint32_t read_ms, write_ms;
    /* 1: writes of .h5 files fail, 2: all writes fail */
    volatile uint32_t no_space, unused;
    uint64_t slow_reads, slow_writes, refused;
};

static struct control *control;
static const char *data, *out;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("TRIREME_SOAK_CONTROL");
    data = getenv("TRIREME_SOAK_DATA");
    out = getenv("TRIREME_SOAK_OUT");
    int file = path && data && out ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) control = mapped;
}

static void wait_ms(uint32_t ms) {
    struct timespec rest = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&rest, &rest) && errno == EINTR) {}
}

/* Returns 1 if the descriptor refers to a path that begins with `folder` and contains `part`. */
static int below(int fd, const char *folder, const char *part) {
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return !strncmp(path, folder, strlen(folder)) && strstr(path, part) != NULL;
}

static void before_read(int fd) {
    if (!control || !control->read_ms || !below(fd, data, "")) return;
    __atomic_fetch_add(&control->slow_reads, 1, __ATOMIC_RELAXED);
    wait_ms(control->read_ms);
}

/* Returns 0 if the write may proceed, or -1 with errno set. */
static int before_write(int fd) {
    if (!control) return 0;
    if (control->no_space && below(fd, out, control->no_space == 1 ? ".h5" : "")) {
        __atomic_fetch_add(&control->refused, 1, __ATOMIC_RELAXED);
        errno = ENOSPC;
        return -1;
    }
    if (control->write_ms && below(fd, out, "")) {
        __atomic_fetch_add(&control->slow_writes, 1, __ATOMIC_RELAXED);
        wait_ms(control->write_ms);
    }
    return 0;
}

/* Declares `next`, the function of this name that this library overrides. */
#define NEXT(name, result, ...)                                             \
    static result (*next)(__VA_ARGS__);                                     \
    if (!next) next = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t read(int fd, void *bytes, size_t count) {
    NEXT("read", ssize_t, int, void *, size_t);
    before_read(fd);
    return next(fd, bytes, count);
}

ssize_t pread(int fd, void *bytes, size_t count, off_t at) {
    NEXT("pread", ssize_t, int, void *, size_t, off_t);
    before_read(fd);
    return next(fd, bytes, count, at);
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) {
    NEXT("pread64", ssize_t, int, void *, size_t, off64_t);
    before_read(fd);
    return next(fd, bytes, count, at);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    NEXT("write", ssize_t, int, const void *, size_t);
    return before_write(fd) ? -1 : next(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    NEXT("writev", ssize_t, int, const struct iovec *, int);
    return before_write(fd) ? -1 : next(fd, parts, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    NEXT("pwrite", ssize_t, int, const void *, size_t, off_t);
    return before_write(fd) ? -1 : next(fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    NEXT("pwrite64", ssize_t, int, const void *, size_t, off64_t);
    return before_write(fd) ? -1 : next(fd, bytes, count, at);
}

int fsync(int fd) {
    NEXT("fsync", int, int);
    return before_write(fd) ? -1 : next(fd);
}
