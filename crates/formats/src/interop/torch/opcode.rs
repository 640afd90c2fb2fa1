//! The pickle operations that the interpreter supports. PyTorch writes protocol 2. Other writers use some operations of
//! protocol 4.

pub const MARK: u8 = b'(';
pub const STOP: u8 = b'.';
pub const BINFLOAT: u8 = b'G';
pub const BININT: u8 = b'J';
pub const BININT1: u8 = b'K';
pub const BININT2: u8 = b'M';
pub const NONE: u8 = b'N';
pub const BINPERSID: u8 = b'Q';
pub const REDUCE: u8 = b'R';
pub const BINSTRING: u8 = b'T';
pub const SHORT_BINSTRING: u8 = b'U';
pub const BINUNICODE: u8 = b'X';
pub const EMPTY_LIST: u8 = b']';
pub const APPEND: u8 = b'a';
pub const BUILD: u8 = b'b';
pub const GLOBAL: u8 = b'c';
pub const APPENDS: u8 = b'e';
pub const BINGET: u8 = b'h';
pub const LONG_BINGET: u8 = b'j';
pub const BINPUT: u8 = b'q';
pub const LONG_BINPUT: u8 = b'r';
pub const SETITEM: u8 = b's';
pub const TUPLE: u8 = b't';
pub const SETITEMS: u8 = b'u';
pub const EMPTY_DICT: u8 = b'}';
pub const EMPTY_TUPLE: u8 = b')';
pub const PROTO: u8 = 0x80;
pub const TUPLE1: u8 = 0x85;
pub const TUPLE2: u8 = 0x86;
pub const TUPLE3: u8 = 0x87;
pub const NEWTRUE: u8 = 0x88;
pub const NEWFALSE: u8 = 0x89;
pub const LONG1: u8 = 0x8a;
pub const SHORT_BINUNICODE: u8 = 0x8c;
pub const STACK_GLOBAL: u8 = 0x93;
pub const MEMOIZE: u8 = 0x94;
pub const FRAME: u8 = 0x95;

/// Unsupported operations and their names for messages.
const REFUSED: [(u8, &str); 8] = [
    (b'i', "INST (creates an object)"),
    (b'o', "OBJ (creates an object)"),
    (0x81, "NEWOBJ (creates an object)"),
    (0x92, "NEWOBJ_EX (creates an object)"),
    (0x82, "EXT1 (refers to a class by its number)"),
    (0x83, "EXT2 (refers to a class by its number)"),
    (0x84, "EXT4 (refers to a class by its number)"),
    (b'P', "PERSID (refers to a storage by text)"),
];

/// Returns the name of an unsupported operation.
pub fn name(opcode: u8) -> String {
    let known = REFUSED.iter().find(|(code, _)| *code == opcode);
    known.map_or_else(|| format!("{opcode:#04x}"), |(_, name)| (*name).to_string())
}
