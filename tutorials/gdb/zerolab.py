"""Shows tensors and parameters in gdb:  gdb -x tutorials/gdb/zerolab.py --args PROGRAM …

(gdb) print u.full_gradient          Tensor (12720) f32, 50880 B of gradient, holders 1 = {-0.0011771, ...}
(gdb) print *u.unit->parameters[0]   its name, data and gradient
(gdb) print/r u.full_gradient        the raw members

Only reads memory, so it also works on core files. It does not read memory of a GPU.
"""
import struct
import gdb
import gdb.printing

SHOWN = 8  # elements
FORMATS = {"f32": "f", "f64": "d", "i32": "i"}
BYTES = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8, "i32": 4}


def enumerator(value):
    """'f32' of zl::Dtype::f32."""
    return str(value).split("::")[-1]


def integers(vector):
    """The elements of a std::vector of integers."""
    begin, end = vector["_M_impl"]["_M_start"], vector["_M_impl"]["_M_finish"]
    return [int(begin[i]) for i in range(int(end - begin))]


def shape_of(tensor):
    return "(" + ", ".join(str(n) for n in integers(tensor["shape_"])) + ")"


def elements(address, dtype, count):
    raw = bytes(gdb.selected_inferior().read_memory(address, count * BYTES[dtype]))
    if dtype in FORMATS:
        return struct.unpack("<%d%s" % (count, FORMATS[dtype]), raw)
    halves = struct.unpack("<%dH" % count, raw)
    if dtype == "bf16":  # the upper half of a float
        return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
    return struct.unpack("<%de" % count, raw)


class TensorPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        storage = self.value["storage_"]["_M_ptr"]
        if int(storage) == 0:
            return "Tensor, undefined"
        dtype, count = enumerator(self.value["dtype_"]), int(self.value["numel_"])
        holders = int(self.value["storage_"]["_M_refcount"]["_M_pi"].dereference()["_M_use_count"])
        text = "Tensor %s %s, %d B of %s, holders %d" % (
            shape_of(self.value), dtype, count * BYTES[dtype], enumerator(storage["use_"]), holders)
        device = enumerator(storage["memory_"]["device_"]["kind"])
        data = int(storage["data_"])
        if device != "cpu" or data == 0:
            return text + ", on " + device
        shown = min(count, SHOWN)
        try:
            values = elements(data + int(self.value["offset_"]) * BYTES[dtype], dtype, shown)
        except gdb.MemoryError:
            return text + ", whose memory cannot be read"
        return text + " = {" + ", ".join("%.5g" % v for v in values) + (", ..." if count > shown else "") + "}"


class ParameterPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        name = self.value["name"]
        text = name["_M_dataplus"]["_M_p"].string(length=int(name["_M_string_length"]))
        state = "usable" if bool(self.value["usable"]) else "not usable"
        return "Parameter %s, %s" % (text, state)

    def children(self):
        for member in ("data", "grad"):
            yield member, self.value[member]


def build():
    printers = gdb.printing.RegexpCollectionPrettyPrinter("zerolab")
    printers.add_printer("Tensor", "^zl::Tensor$", TensorPrinter)
    printers.add_printer("Parameter", "^zl::Parameter$", ParameterPrinter)
    return printers


gdb.printing.register_pretty_printer(gdb.current_objfile(), build(), replace=True)
