static int nothing; extern "C" int* trireme_nothing() { return &nothing; }
