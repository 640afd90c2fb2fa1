// Replaces CUDA's header of the same name.
#include "../half.h"
