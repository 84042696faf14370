/* The module that Python finds an extension by. Its functions are called through ctypes, without the interpreter's
 * lock; the module itself is empty. HEADWATER_INIT is set by setup.py: PyInit_ and the extension's name. */

#include <Python.h>

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "headwater.native", NULL, 0, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC HEADWATER_INIT(void) { return PyModuleDef_Init(&definition); }
