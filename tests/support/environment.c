/* Preloaded into a program: logs each read and change of an environment variable, and the start of MPI, to the file in ENVIRONMENT_LOG.
   The columns of a line are process, thread, action, variable and the file of the calling code. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALLER __builtin_return_address(0)
#define NEXT(type, name, ...) static type (*next)(__VA_ARGS__); if (!next) *(void **)&next = dlsym(RTLD_NEXT, name)

static void note(const char *what, const char *name, void *caller) {
  static char *(*look)(const char *);
  if (!look) *(void **)&look = dlsym(RTLD_NEXT, "getenv");
  const char *path = look("ENVIRONMENT_LOG");
  int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  if (file < 0) return;
  Dl_info from = {0};
  const char *library = dladdr(caller, &from) && from.dli_fname ? from.dli_fname : "?";
  char line[512];
  int length = snprintf(line, sizeof line, "%d %ld %s %.100s %.300s\n", getpid(), syscall(SYS_gettid), what, name, library);
  if (write(file, line, length) != length) abort();
  close(file);
}

char *getenv(const char *name) { NEXT(char *, "getenv", const char *); note("read", name, CALLER); return next(name); }

char *secure_getenv(const char *name) { NEXT(char *, "secure_getenv", const char *); note("read", name, CALLER); return next(name); }

int setenv(const char *name, const char *value, int over) {
  NEXT(int, "setenv", const char *, const char *, int);
  note("change", name, CALLER);
  return next(name, value, over);
}

int unsetenv(const char *name) { NEXT(int, "unsetenv", const char *); note("change", name, CALLER); return next(name); }

int putenv(char *text) { NEXT(int, "putenv", char *); note("change", text, CALLER); return next(text); }

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *granted) {
  NEXT(int, "MPI_Init_thread", int *, char ***, int, int *);
  note("start", "MPI", CALLER);
  int code = next(argc, argv, wanted, granted);
  note("started", "MPI", CALLER);
  return code;
}
