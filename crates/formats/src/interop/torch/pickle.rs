//! The pickle interpreter: a stack, a memo, and the supported operations. It never calls a function.

use std::collections::BTreeMap;

use super::values::{Class, Value, Values, keep};
use crate::interop::number::Number;
use crate::interop::weights::{Fault, damaged};

/// Limit for the total length of a file's pickles, in bytes. Each byte can create a 16-byte value.
pub const LONGEST: usize = 16 << 20;

/// Limit for the number of lists, dictionaries, strings and tensors. A single byte can create an empty list, which takes 40 bytes.
const MOST_CONTAINERS: usize = 2 << 20;

/// The pickle operations that the interpreter supports. PyTorch writes protocol 2. Other writers use some operations of
/// protocol 4.
mod op {
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
}

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
fn unsupported(opcode: u8) -> String {
    let known = REFUSED.iter().find(|(code, _)| *code == opcode);
    known.map_or_else(|| format!("{opcode:#04x}"), |(_, name)| (*name).to_string())
}

/// The result of a pickle and everything that it created.
#[derive(Debug)]
pub struct Loaded {
    pub root: Value,
    pub values: Values,
    /// Length of the pickle in bytes.
    pub len: usize,
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// Length of the stack at each mark.
    marks: Vec<usize>,
    memo: BTreeMap<u32, Value>,
    values: Values,
}

/// Runs the pickle at the start of these bytes. Ignores the bytes after its end.
pub fn load(bytes: &[u8]) -> Result<Loaded, Fault> {
    load_within(bytes, LONGEST)
}

/// Works like [`load`], but reads at most `longest` bytes.
pub fn load_within(bytes: &[u8], longest: usize) -> Result<Loaded, Fault> {
    let bytes = &bytes[..bytes.len().min(longest)];
    let (stack, marks, memo) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut machine = Machine { bytes, at: 0, stack, marks, memo, values: Values::default() };
    loop {
        match machine.u8()? {
            op::STOP => break,
            opcode => machine.step(opcode)?,
        }
        if machine.values.containers() > MOST_CONTAINERS {
            return damaged(format!("its pickle creates more than {MOST_CONTAINERS} lists, dictionaries and strings"));
        }
    }
    Ok(Loaded { root: machine.pop()?, len: machine.at, values: machine.values })
}

impl<'a> Machine<'a> {
    fn step(&mut self, opcode: u8) -> Result<(), Fault> {
        match opcode {
            op::PROTO => self.u8().map(drop),
            op::FRAME => self.take(8).map(drop),
            op::MARK => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            op::NONE => self.push(Value::None),
            op::NEWTRUE | op::NEWFALSE => self.push(Value::Bool),
            op::BINFLOAT => self.take(8).and_then(|_| self.push(Value::Float)),
            op::BININT | op::BININT1 | op::BININT2 | op::LONG1 => self.integer(opcode),
            op::BINSTRING | op::SHORT_BINSTRING | op::BINUNICODE | op::SHORT_BINUNICODE => self.text(opcode),
            op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => self.memoize(opcode),
            op::BINGET | op::LONG_BINGET => self.recall(opcode),
            op::EMPTY_LIST | op::EMPTY_TUPLE => self.push_list(Vec::new()),
            op::TUPLE => self.take_to_mark().and_then(|items| self.push_list(items)),
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                self.last(1 + usize::from(opcode - op::TUPLE1)).and_then(|items| self.push_list(items))
            }
            op::EMPTY_DICT => self.push_dictionary(),
            op::APPEND => self.last(1).and_then(|items| self.append(items)),
            op::APPENDS => self.take_to_mark().and_then(|items| self.append(items)),
            op::SETITEM => self.last(2).and_then(|items| self.set(&items)),
            op::SETITEMS => self.take_to_mark().and_then(|items| self.set(&items)),
            op::GLOBAL | op::STACK_GLOBAL => self.class(opcode),
            op::BINPERSID => self.persistent(),
            op::REDUCE => self.reduce(),
            op::BUILD => self.build(),
            other => Err(Fault::Unsupported(format!(
                "its pickle has the operation {} at byte {}, which is not supported: only state_dicts of plain tensors are read. If you \
                 trust the file, load it in PyTorch and save only model.state_dict()",
                unsupported(other),
                self.at - 1
            ))),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return damaged(format!("its pickle ends at byte {}, in the middle of an operation", self.bytes.len()));
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    /// Reads an unsigned little-endian number of up to eight bytes.
    fn uint(&mut self, len: usize) -> Result<u64, Fault> {
        Ok(self.take(len)?.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }

    fn push(&mut self, value: Value) -> Result<(), Fault> {
        self.stack.push(value);
        Ok(())
    }

    fn push_list(&mut self, items: Vec<Value>) -> Result<(), Fault> {
        let list = keep(&mut self.values.lists, items);
        self.push(Value::List(list))
    }

    fn push_dictionary(&mut self) -> Result<(), Fault> {
        let dictionary = keep(&mut self.values.dictionaries, Vec::new());
        self.push(Value::Dictionary(dictionary))
    }

    fn pop(&mut self) -> Result<Value, Fault> {
        Ok(self.last(1)?[0])
    }

    /// Removes the last `count` values from the stack and returns them. Fails if that would cross a mark.
    fn last(&mut self, count: usize) -> Result<Vec<Value>, Fault> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(count).filter(|left| *left >= floor) {
            Some(left) => Ok(self.stack.split_off(left)),
            None => damaged(format!("its pickle pops more values from the stack at byte {} than it has", self.at)),
        }
    }

    /// Removes the last mark and all values above it, and returns the values.
    fn take_to_mark(&mut self) -> Result<Vec<Value>, Fault> {
        match self.marks.pop() {
            Some(mark) => Ok(self.stack.split_off(mark)),
            None => damaged(format!("its pickle needs a mark at byte {}, but the stack has no mark", self.at)),
        }
    }

    fn top(&self) -> Result<Value, Fault> {
        match self.stack.last().filter(|_| self.stack.len() > self.marks.last().copied().unwrap_or(0)) {
            Some(value) => Ok(*value),
            None => damaged(format!("its pickle changes the last value at byte {}, but there is no value", self.at)),
        }
    }

    fn integer(&mut self, opcode: u8) -> Result<(), Fault> {
        let (len, signed) = match opcode {
            op::BININT1 => (1, false),
            op::BININT2 => (2, false),
            op::BININT => (4, true),
            _ => (usize::from(self.u8()?), true),
        };
        if len > 8 {
            self.take(len)?;
            return self.push(Value::Long);
        }
        let unused = 64 - 8 * len as u32;
        let number = self.uint(len)?;
        let number = match (signed, len) {
            (_, 0) => 0,
            (true, _) => (number << unused) as i64 >> unused,
            (false, _) => number as i64,
        };
        self.push(Value::Int(number))
    }

    fn text(&mut self, opcode: u8) -> Result<(), Fault> {
        let short = matches!(opcode, op::SHORT_BINSTRING | op::SHORT_BINUNICODE);
        let len = self.uint(if short { 1 } else { 4 })?;
        let bytes = self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        let Ok(text) = std::str::from_utf8(bytes) else { return damaged("its pickle has a string that is not UTF-8") };
        let text = keep(&mut self.values.texts, text.to_string());
        self.push(Value::Text(text))
    }

    fn memoize(&mut self, opcode: u8) -> Result<(), Fault> {
        let key = match opcode {
            op::BINPUT => self.uint(1)? as u32,
            op::LONG_BINPUT => self.uint(4)? as u32,
            _ => self.memo.len() as u32,
        };
        let value = self.top()?;
        self.memo.insert(key, value);
        Ok(())
    }

    fn recall(&mut self, opcode: u8) -> Result<(), Fault> {
        let key = self.uint(if opcode == op::BINGET { 1 } else { 4 })? as u32;
        match self.memo.get(&key).copied() {
            Some(value) => self.push(value),
            None => damaged(format!("its pickle reads memo entry {key}, which was never stored")),
        }
    }

    fn append(&mut self, items: Vec<Value>) -> Result<(), Fault> {
        match self.top()? {
            Value::List(list) => {
                self.values.lists[list].extend(items);
                Ok(())
            }
            other => damaged(format!("its pickle appends to {}, expected a list", other.words())),
        }
    }

    fn set(&mut self, items: &[Value]) -> Result<(), Fault> {
        let (pairs, rest) = items.as_chunks::<2>();
        match self.top()? {
            Value::Dictionary(dictionary) if rest.is_empty() => {
                self.values.dictionaries[dictionary].extend(pairs.iter().map(|[key, value]| (*key, *value)));
                Ok(())
            }
            Value::Dictionary(_) => damaged("its pickle sets an item of a dictionary without a value"),
            other => damaged(format!("its pickle sets items of {}, expected a dictionary", other.words())),
        }
    }

    /// Pushes a class or function. Its name is looked up in [`KNOWN`] and never imported.
    fn class(&mut self, opcode: u8) -> Result<(), Fault> {
        let (module, name) = match opcode {
            op::GLOBAL => (self.line()?, self.line()?),
            _ => {
                let names = self.last(2)?;
                (self.values.text(names[0])?.to_string(), self.values.text(names[1])?.to_string())
            }
        };
        match find_class(&module, &name) {
            Some(class) => self.push(Value::Class(class)),
            None => Err(Fault::Unsupported(format!(
                "its pickle names {module}.{name}, which is not a class that describes tensors. No code of the file was executed. If \
                 you trust the file, load it in PyTorch and save only model.state_dict()"
            ))),
        }
    }

    /// Reads a string that ends with a line break.
    fn line(&mut self) -> Result<String, Fault> {
        let len = self.bytes[self.at..].iter().take(1024).position(|byte| *byte == b'\n');
        let Some(len) = len else { return damaged("its pickle has a name without an end") };
        let text = String::from_utf8_lossy(self.take(len)?).into_owned();
        self.u8()?;
        Ok(text)
    }

    fn persistent(&mut self) -> Result<(), Fault> {
        let id = self.pop()?;
        let storage = self.values.storage(id)?;
        self.push(storage)
    }

    /// Replaces a class and its arguments on the stack by the object that they describe.
    fn reduce(&mut self) -> Result<(), Fault> {
        let call = self.last(2)?;
        self.values.charge(self.values.list(call[1])?.len())?;
        let arguments = self.values.list(call[1])?.to_vec();
        let made = match (call[0], arguments.first()) {
            (Value::Class(Class::Dictionary), _) => self.values.dictionary(&arguments)?,
            (Value::Class(Class::Tensor), _) => self.values.tensor(&arguments)?,
            (Value::Class(Class::Parameter), Some(tensor @ Value::Tensor(_))) => *tensor,
            (other, _) => return damaged(format!("its pickle calls {} in an unexpected way", other.words())),
        };
        self.push(made)
    }

    /// Ignores the attributes of a dictionary, such as the versions of modules.
    fn build(&mut self) -> Result<(), Fault> {
        self.pop()?;
        match self.top()? {
            Value::Dictionary(_) => Ok(()),
            other => damaged(format!("its pickle sets attributes of {}, expected a dictionary", other.words())),
        }
    }
}

// The classes and functions that a pickle may name: those that describe PyTorch's tensors and dictionaries. None of
// them is called.

/// The module, name and meaning of each allowed class or function.
const KNOWN: &[(&str, &str, Class)] = &[
    ("collections", "OrderedDict", Class::Dictionary),
    ("torch._utils", "_rebuild_tensor", Class::Tensor),
    ("torch._utils", "_rebuild_tensor_v2", Class::Tensor),
    ("torch._utils", "_rebuild_parameter", Class::Parameter),
    ("torch", "DoubleStorage", Class::Storage(Number::F64)),
    ("torch", "FloatStorage", Class::Storage(Number::F32)),
    ("torch", "HalfStorage", Class::Storage(Number::F16)),
    ("torch", "BFloat16Storage", Class::Storage(Number::Bf16)),
    ("torch", "LongStorage", Class::Storage(Number::I64)),
    ("torch", "IntStorage", Class::Storage(Number::I32)),
    ("torch", "ShortStorage", Class::Storage(Number::I16)),
    ("torch", "CharStorage", Class::Storage(Number::I8)),
    ("torch", "ByteStorage", Class::Storage(Number::U8)),
    ("torch", "BoolStorage", Class::Storage(Number::Bool)),
];

/// Returns the meaning of a global name in a pickle, or `None` if the name is not allowed.
pub fn find_class(module: &str, name: &str) -> Option<Class> {
    KNOWN.iter().find(|known| (known.0, known.1) == (module, name)).map(|known| known.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as a pickle of protocol 2.
    fn run(program: &[u8]) -> Result<Loaded, Fault> {
        load(&[b"\x80\x02", program, b"."].concat())
    }

    fn refused(program: &[u8]) -> String {
        match run(program) {
            Err(Fault::Damaged(text) | Fault::Unsupported(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pickle_cannot_call_functions() {
        let ways: [&[u8]; 4] = [
            b"cos\nsystem\nX\x07\0\0\0echo hi\x85R",
            b"X\x02\0\0\0osX\x06\0\0\0system\x93",
            b"cbuiltins\neval\n",
            b"ctorch.storage\n_load_from_bytes\n",
        ];
        for (way, name) in
            ways.into_iter().zip(["os.system", "os.system", "builtins.eval", "torch.storage._load_from_bytes"])
        {
            assert!(refused(way).contains(&format!("names {name},")), "{}", refused(way));
        }
        for (way, name) in [(b"(ios\nsystem\n".as_slice(), "INST"), (b"(os".as_slice(), "OBJ"), (b"))\x81", "NEWOBJ")] {
            assert!(refused(way).contains(name), "{}", refused(way));
        }
        // an allowed name may only be called in its intended way
        assert!(refused(b"ctorch\nFloatStorage\n)R").contains("calls a class"));
        assert!(refused(b"K\x01)R").contains("calls a number"));
    }

    #[test]
    fn stacks_marks_and_memos_are_checked() {
        for (program, part) in [
            (b"".as_slice(), "stack at byte 3"),
            (b"t", "mark at byte 3"),
            (b"(K\x01(\x85", "stack at byte 7"),
            (b"h\x03", "entry 3"),
            (b"q\0", "value at byte 4"),
            (b"}K\x01s", "value at byte 6"),
            (b"K\x01K\x02a", "appends to a number"),
            (b"}(K\x01u", "without a value"),
            (b"X\xff\xff\xff\x7fabc", "ends at byte 11"),
            (b"cabc", "without an end"),
            (b"\x8a\x0912345678", "ends at byte 13"),
            (b"X\x01\0\0\0\xff", "not UTF-8"),
            (b"K\x01Q", "list or tuple"),
            (b"]K\x01b", "sets attributes"),
        ] {
            assert!(refused(program).contains(part), "{program:?}: {}", refused(program));
        }
        assert!(matches!(load(b"\x80\x02K\x01"), Err(Fault::Damaged(_))));
    }

    #[test]
    fn pickled_integers_have_the_right_sign() {
        let number = |program: &[u8]| run(program).unwrap().root;
        assert_eq!(number(b"J\xfe\xff\xff\xff"), Value::Int(-2));
        assert_eq!(number(b"M\xfe\xff"), Value::Int(65_534));
        assert_eq!(number(b"\x8a\x01\xff"), Value::Int(-1));
        assert_eq!(number(b"\x8a\0"), Value::Int(0));
        // a 64-bit seed has a ninth byte for its sign
        assert_eq!(number(b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0"), Value::Long);
    }

    /// Short operations copy a long list or string again and again. The interpreter must stop before it has used the
    /// memory or time.
    #[test]
    fn repeated_copies_stop_at_the_memory_limit() {
        let again = |setup: &[u8], operation: &[u8]| [setup, &operation.repeat(100_000)].concat();
        let class = b"ccollections\nOrderedDict\nq\0]q\x01(".as_slice();
        let pairs = [class, &b"NN\x86".repeat(1000), b"eh\x01\x85q\x02"].concat();
        let class = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x00\x10\0\0".as_slice();
        let text = [class, &[b'k'; 4096], b"NK\x01tq\0"].concat();
        for (setup, operation) in [(pairs, b"(h\0h\x02Rt".as_slice()), (text, b"(h\0Qt")] {
            let program = again(&setup, operation);
            assert!(refused(&program).contains("copies more than"), "{}", refused(&program));
        }
    }

    /// PyTorch marks a view as negated. Its values differ from the values in the storage.
    #[test]
    fn tensors_whose_values_are_changed_are_refused() {
        let storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x02tQ".as_slice();
        let tensor = |marks: &[u8]| {
            let function = b"ctorch._utils\n_rebuild_tensor_v2\n(".as_slice();
            [function, storage, b"K\0K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)R", marks, b"tR"].concat()
        };
        assert!(matches!(run(&tensor(b"")).unwrap().root, Value::Tensor(0)));
        assert!(matches!(run(&tensor(b"}")).unwrap().root, Value::Tensor(0)));
        assert!(refused(&tensor(b"}X\x03\0\0\0neg\x88s")).contains("neg bit"));
    }

    /// One pickle has a list that is nested a million times, another a list that contains itself. Dropping them must
    /// not recurse.
    #[test]
    fn deep_and_circular_values_are_dropped() {
        let deep = [b")".as_slice(), &b"\x85".repeat(1_000_000)].concat();
        assert!(matches!(run(&deep).unwrap().root, Value::List(_)));
        assert!(run(b"]q\0h\0a").is_ok());
    }
}
