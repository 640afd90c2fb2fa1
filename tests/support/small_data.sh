# shellcheck shell=bash
# Small data sets for scripts of tests: the first images of Fashion-MNIST. To be sourced.
# SOURCE is the folder with its four files, by default that of Debian's package.
: "${SOURCE:=/usr/share/datasets/fashion-mnist}"

# cut_idx FOLDER NAME COUNT HEADER BYTES: writes the first COUNT items of an IDX file, each of BYTES bytes, after a header of HEADER bytes.
cut_idx() {
    local name=$2 count=$3 header=$4 bytes=$5 file=$1/$2
    [ -r "$SOURCE/$name.gz" ] || { echo "$SOURCE/$name.gz does not exist; run: make setup" >&2; return 1; }
    zcat "$SOURCE/$name.gz" 2>/dev/null | head -c $((header + count * bytes)) >"$file" || true
    # shellcheck disable=SC2059 # four bytes, the highest first
    printf "$(printf '\\x%02x' 0 0 $((count / 256)) $((count % 256)))" | dd of="$file" bs=1 seek=4 conv=notrunc status=none
}

# cut_source FOLDER COUNT: writes the first COUNT training and 200 test images of $SOURCE to FOLDER.
cut_source() {
    cut_idx "$1" train-images-idx3-ubyte "$2" 16 784 &&
    cut_idx "$1" train-labels-idx1-ubyte "$2" 8 1 &&
    cut_idx "$1" t10k-images-idx3-ubyte 200 16 784 &&
    cut_idx "$1" t10k-labels-idx1-ubyte 200 8 1
}

# make_data FOLDER: converts the first 2,000 training images and 200 test images to FOLDER with $TRIREME.
make_data() {
    local idx
    idx=$(mktemp -d)
    cut_source "$idx" 2000 || return 1
    "$TRIREME" data convert fashion-mnist "$idx" "$1" --shards 4 2>"$idx/log" || { cat "$idx/log" >&2; return 1; }
    rm -r "$idx"
}
