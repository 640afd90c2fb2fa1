/* A stand-in for the MPI library with one rank, preloaded in front of the real library. Its collectives copy data or do nothing. With it
   all threads of the process run code that ThreadSanitizer instruments, and none belong to an uninstrumented MPI library. It is compiled
   with mpicc because it uses the handles and constants of mpi.h. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int initialized, finalized;

static int bytes_of(MPI_Datatype kind) {
    if (kind == MPI_DOUBLE || kind == MPI_INT64_T || kind == MPI_UINT64_T) return 8;
    if (kind == MPI_FLOAT || kind == MPI_INT32_T || kind == MPI_UINT32_T) return 4;
    if (kind == MPI_INT16_T || kind == MPI_UINT16_T) return 2;
    if (kind == MPI_INT8_T || kind == MPI_UINT8_T || kind == MPI_BYTE) return 1;
    fprintf(stderr, "the stand-in for MPI does not know this datatype\n");
    abort();
}

static int text(const char *from, char *into, int *length) {
    *length = (int)strlen(from);
    memcpy(into, from, (size_t)*length + 1);
    return MPI_SUCCESS;
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *granted) {
    (void)argc, (void)argv;
    initialized = 1;
    *granted = wanted;
    return MPI_SUCCESS;
}

int MPI_Initialized(int *flag) { return *flag = initialized, MPI_SUCCESS; }
int MPI_Finalized(int *flag) { return *flag = finalized, MPI_SUCCESS; }
int MPI_Finalize(void) { return finalized = 1, MPI_SUCCESS; }
int MPI_Get_library_version(char *into, int *length) { return text("a stand-in for MPI, one rank", into, length); }
int MPI_Get_processor_name(char *into, int *length) { return text("stand-in", into, length); }
int MPI_Error_string(int code, char *into, int *length) { return (void)code, text("no error", into, length); }
int MPI_Error_class(int code, int *class) { return *class = code, MPI_SUCCESS; }

int MPI_Abort(MPI_Comm comm, int code) {
    (void)comm;
    exit(code);
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) { return (void)comm, (void)handler, MPI_SUCCESS; }
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made) { return *made = comm, MPI_SUCCESS; }
int MPI_Comm_free(MPI_Comm *comm) { return *comm = MPI_COMM_NULL, MPI_SUCCESS; }
int MPI_Comm_rank(MPI_Comm comm, int *rank) { return (void)comm, *rank = 0, MPI_SUCCESS; }
int MPI_Comm_size(MPI_Comm comm, int *size) { return (void)comm, *size = 1, MPI_SUCCESS; }
int MPI_Barrier(MPI_Comm comm) { return (void)comm, MPI_SUCCESS; }

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made) {
    return (void)color, (void)key, *made = comm, MPI_SUCCESS;
}

int MPI_Comm_split_type(MPI_Comm comm, int kind, int key, MPI_Info info, MPI_Comm *made) {
    return (void)kind, (void)key, (void)info, *made = comm, MPI_SUCCESS;
}

int MPI_Op_create(MPI_User_function *f, int commutes, MPI_Op *made) {
    return (void)f, (void)commutes, *made = MPI_SUM, MPI_SUCCESS;
}

int MPI_Op_free(MPI_Op *op) { return *op = MPI_OP_NULL, MPI_SUCCESS; }

int MPI_Allreduce(const void *from, void *into, int count, MPI_Datatype kind, MPI_Op op, MPI_Comm comm) {
    (void)op, (void)comm;
    if (from != MPI_IN_PLACE) memcpy(into, from, (size_t)count * bytes_of(kind));
    return MPI_SUCCESS;
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype kind, int root, MPI_Comm comm) {
    return (void)buffer, (void)count, (void)kind, (void)root, (void)comm, MPI_SUCCESS;
}

int MPI_Gather(const void *from, int count, MPI_Datatype kind, void *into, int room, MPI_Datatype type, int root, MPI_Comm comm) {
    (void)room, (void)type, (void)root, (void)comm;
    memcpy(into, from, (size_t)count * bytes_of(kind));
    return MPI_SUCCESS;
}

int MPI_Gatherv(const void *from, int count, MPI_Datatype kind, void *into, const int counts[], const int offsets[], MPI_Datatype type,
                int root, MPI_Comm comm) {
    (void)counts, (void)type, (void)root, (void)comm;
    memcpy((char *)into + (size_t)offsets[0] * bytes_of(kind), from, (size_t)count * bytes_of(kind));
    return MPI_SUCCESS;
}
