/* Values that differ between the mpi.h of different MPI libraries and that only C code can read. */
#include <mpi.h>

/* MPI_IN_PLACE is a macro. */
void *trireme_mpi_in_place(void) { return MPI_IN_PLACE; }

/* The binary interface that this program was compiled for: 1 is Open MPI, 2 is MPICH's common ABI, 0 is unknown. */
int trireme_mpi_family(void)
{
#if defined(OPEN_MPI)
    return 1;
#elif defined(MPICH_VERSION) || defined(MPICH_NAME) || defined(I_MPI_VERSION) || defined(MVAPICH2_VERSION)
    return 2;
#else
    return 0;
#endif
}
