/* Imitates a killed process that has not ended yet. It locks a file and ends its main thread. A second thread keeps the process, and thus
 * the lock, alive until the end of standard input.
 *   ending FILE */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *second(void *unused) {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    _exit(unused != NULL);
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    int file = open(arguments[1], O_RDWR);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    pthread_t thread;
    if (file < 0 || fcntl(file, F_SETLK, &whole) || pthread_create(&thread, NULL, second, NULL))
        return 1;
    puts("locked");
    fflush(stdout);
    pthread_exit(NULL);
}
