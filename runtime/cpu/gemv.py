"""`sgemm` that hands one-row products to `sgemv`, as machine code.

Decoding one token is a chain of products with one row. OpenBLAS runs them twice as fast as matrix-vector
products (at memory speed), yet does not look for the case itself. MLX calls `cblas_sgemm` only, so the switch
has to stand behind that address; Python cannot stand there (a call per product under the interpreter lock),
fifty bytes can.

For M = 1, row-major, A as it stands, C = alpha · A · op(B) + beta · C is y = alpha · op(B)ᵀ · x + beta · y.

Relies on: x86-64 System V calling convention. The caller's stack arguments belong to the callee, so they are
rewritten in place and the call is passed on as a jump. Only scratch registers are touched.

              edi    esi     edx     ecx r8d  r9d  xmm0   [rsp+8] +16   +24 +32   xmm1  +40 +48
    sgemm     order  transA  transB  M   N    K    alpha  A       lda   B   ldb   beta  C   ldc
    sgemv     order  trans   rows    cols B   ldb  alpha  x       incx  y   incy  beta
"""

import ctypes
import mmap
import os
import struct

ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112  # CBLAS enumerations

# Two placeholders of eight bytes end the code: the addresses of sgemv and of sgemm.
CODE = bytes.fromhex(
    "f30f1efa"  # 00       endbr64                 a valid target of indirect calls under CET
    "83f901"  # 04         cmp  ecx, 1             one row?
    "7551"  # 07           jne  5a
    "83ff65"  # 09         cmp  edi, 101           row-major?
    "754c"  # 0c           jne  5a
    "83fe6f"  # 0e         cmp  esi, 111           A as it stands?
    "7547"  # 11           jne  5a
    "83fa70"  # 13         cmp  edx, 112           B transposed, stored [N, K]: y = B x
    "7412"  # 16           je   2a
    "83fa6f"  # 18         cmp  edx, 111           B as it stands, stored [K, N]: y = Bᵀ x
    "753d"  # 1b           jne  5a
    "be70000000"  # 1d     mov  esi, 112
    "4489ca"  # 22         mov  edx, r9d           rows = K
    "4489c1"  # 25         mov  ecx, r8d           cols = N
    "eb06"  # 28           jmp  30
    "4489c2"  # 2a         mov  edx, r8d           rows = N    (trans = 111 is there already)
    "4489c9"  # 2d         mov  ecx, r9d           cols = K
    "4c8b442418"  # 30     mov  r8, [rsp+24]       B
    "448b4c2420"  # 35     mov  r9d, [rsp+32]      ldb
    "488b442428"  # 3a     mov  rax, [rsp+40]      C
    "4889442418"  # 3f     mov  [rsp+24], rax      y = C       (x = A is there already)
    "c744241001000000"  # 44  mov  dword [rsp+16], 1   incx
    "c744242001000000"  # 4c  mov  dword [rsp+32], 1   incy
    "ff2506000000"  # 54   jmp  [rip+6]  -> 60     sgemv
    "ff2508000000"  # 5a   jmp  [rip+8]  -> 68     sgemm
)


def switch(sgemm: int, sgemv: int) -> int | None:
    """Address of a `cblas_sgemm` that passes one-row products to `sgemv`; None where that cannot be.

    The page is never writable and executable at once, and stays for the life of the process.
    """
    if os.uname().machine != "x86_64":
        return None
    code = CODE + struct.pack("<QQ", sgemv, sgemm)
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE)
    except OSError:
        return None
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    executable = mmap.PROT_READ | mmap.PROT_EXEC
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), executable):
        return None  # hardened hosts refuse executable anonymous memory
    _pages.append(page)
    return address


_pages: list[mmap.mmap] = []  # imported slots may point here until the process ends
