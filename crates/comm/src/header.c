/* What differs from one mpi.h to the next, so that only C can tell it. */
#include <mpi.h>

/* MPI_IN_PLACE is a macro. */
void *trireme_mpi_in_place(void) { return MPI_IN_PLACE; }

/* Whose binary interface this program was compiled for: 1 Open MPI's, 2 MPICH's common one, 0 another. */
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
