; Arrays that live inside a kernel: a count of who holds it, and in the fourth word its data.
; They begin with a line of the cache, whatever is asked for: a vector in two lines is read twice.

@numpy.ndarray = global ptr null

declare ptr @malloc(i64)
declare void @free(ptr)

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %all = add i64 %size, 104
  %block = call ptr @malloc(i64 %all)
  %none = icmp eq ptr %block, null
  br i1 %none, label %end, label %fill
fill:
  store i64 1, ptr %block
  %first = getelementptr i8, ptr %block, i64 40
  %at = ptrtoint ptr %first to i64
  %below = sub i64 0, %at
  %gap = and i64 %below, 63
  %data = getelementptr i8, ptr %first, i64 %gap
  %place = getelementptr { i64, ptr, ptr, ptr }, ptr %block, i64 0, i32 3
  store ptr %data, ptr %place
  br label %end
end:
  ret ptr %block
}

define void @NRT_MemInfo_call_dtor(ptr %block) {
  call void @free(ptr %block)
  ret void
}
