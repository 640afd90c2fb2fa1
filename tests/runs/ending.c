/* Imitates a killed process that has not ended yet. It locks a file and ends its main thread. A second thread keeps the process, and thus
 * the lock, alive for the given time.
 *   ending FILE MILLISECONDS */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *second(void *milliseconds) {
    usleep(1000 * (useconds_t)atoi(milliseconds));
    _exit(0);
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    int file = open(arguments[1], O_RDWR);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    pthread_t thread;
    if (file < 0 || fcntl(file, F_SETLK, &whole) || pthread_create(&thread, NULL, second, arguments[2]))
        return 1;
    puts("locked");
    fflush(stdout);
    pthread_exit(NULL);
}
